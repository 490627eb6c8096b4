#include "tutti/data/prepare/synthetic_text.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "tutti/base/hash.h"
#include "tutti/base/json.h"
#include "tutti/base/rng.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

// Draws in order from one random stream.
class Dice {
 public:
  explicit Dice(uint64_t key) : key_(key) {}
  // Uniform in [0, sides) but for a bias below sides / 2^32.
  uint64_t roll(uint64_t sides) {
    const uint64_t word = random_u64(key_, next_++) >> 32U;
    return word * sides >> 32U;
  }
  bool chance(uint64_t percent) { return roll(100) < percent; }

 private:
  uint64_t key_;
  uint64_t next_ = 0;
};

using Words = std::vector<std::string>;

constexpr std::array<std::string_view, 14> kOnsets = {"b", "d", "f", "g", "k", "l", "m",
                                                      "n", "p", "r", "s", "t", "v", "st"};
constexpr std::array<std::string_view, 5> kVowels = {"a", "e", "i", "o", "u"};
constexpr std::array<std::string_view, 6> kCodas = {"", "", "", "n", "r", "l"};
constexpr std::array<std::string_view, 6> kPrepositions = {"in",     "near",  "under",
                                                           "behind", "above", "by"};
// What a topic multiplies ranks by: coprime with the length of every list, so that all words occur.
constexpr std::array<uint64_t, 12> kTopics = {1, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43};

std::string invent(Dice& dice, uint64_t least_syllables, uint64_t most_syllables) {
  std::string word;
  const uint64_t syllables = least_syllables + dice.roll(most_syllables - least_syllables + 1);
  for (uint64_t i = 0; i < syllables; ++i) {
    word += kOnsets[dice.roll(kOnsets.size())];
    word += kVowels[dice.roll(kVowels.size())];
    word += kCodas[dice.roll(kCodas.size())];
  }
  return word;
}

// `count` words that no list had before.
Words invent_words(Dice& dice, std::set<std::string>& taken, size_t count, uint64_t least,
                   uint64_t most) {
  Words words;
  while (words.size() < count) {
    std::string word = invent(dice, least, most);
    if (taken.insert(word).second) words.push_back(std::move(word));
  }
  return words;
}

std::string capital(std::string word) {
  word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

// Rank r of `count` with a weight of 1 / (r + 1).
uint64_t zipf(Dice& dice, uint64_t count) {
  constexpr uint64_t kOne = 1U << 20U;
  uint64_t sum = 0;
  for (uint64_t r = 0; r < count; ++r) sum += kOne / (r + 1);
  uint64_t at = dice.roll(sum);
  for (uint64_t r = 0; r < count; ++r) {
    const uint64_t weight = kOne / (r + 1);
    if (at < weight) return r;
    at -= weight;
  }
  return count - 1;
}

}  // namespace

struct SyntheticLanguage::Lexicon {
  uint64_t seed = 0;
  Words nouns, verbs, adjectives, names, towns;
};

namespace {

struct Person {
  std::string name, town, trade;
};

// One document in the making.
template <typename Lexicon>
class Writer {
 public:
  Writer(const Lexicon& lexicon, uint64_t index)
      : words_(lexicon),
        dice_(stream_key(lexicon.seed, "synthetic document", std::to_string(index))),
        topic_(dice_.roll(kTopics.size())) {
    const uint64_t people = 2 + dice_.roll(3);
    const uint64_t first = dice_.roll(words_.names.size());
    for (uint64_t i = 0; i < people; ++i) {
      people_.push_back({words_.names[(first + 7 * i) % words_.names.size()],
                         words_.towns[dice_.roll(words_.towns.size())], noun()});
    }
  }

  std::string write() {
    for (const Person& person : people_) {
      say({person.name, "lives in", person.town});
      say({person.name, "is a", person.trade});
    }
    const uint64_t paragraphs = 2 + dice_.roll(5);
    for (uint64_t p = 0; p < paragraphs; ++p) {
      text_ += '\n';
      const uint64_t sentences = 3 + dice_.roll(8);
      for (uint64_t s = 0; s < sentences; ++s) sentence();
    }
    text_ += '\n';
    return std::move(text_);
  }

 private:
  // The parts of a sentence are drawn in the order of a braced list, which the language guarantees.
  void say(const Words& parts) {
    if (!text_.empty() && text_.back() != '\n') text_ += ' ';
    text_ += join(parts, " ");
    text_ += '.';
  }

  // Each topic has another order of frequency.
  const std::string& frequent(const Words& words) {
    const uint64_t rank = zipf(dice_, words.size());
    return words[(rank * kTopics[topic_] + topic_ * words.size() / kTopics.size()) % words.size()];
  }
  std::string noun(bool plural = false) { return frequent(words_.nouns) + (plural ? "n" : ""); }
  std::string verb(bool plural) { return frequent(words_.verbs) + (plural ? "" : "s"); }
  const Person& person() { return people_[dice_.roll(people_.size())]; }
  std::string preposition() { return std::string(kPrepositions[dice_.roll(kPrepositions.size())]); }

  std::string described(bool plural) {
    if (!dice_.chance(35)) return join(Words{"the", noun(plural)}, " ");
    return join(Words{"the", frequent(words_.adjectives), noun(plural)}, " ");
  }

  // A subject whose verb must agree with it, perhaps across a clause about it.
  std::string subject(bool plural, int depth) {
    const std::string phrase = described(plural);
    if (depth >= 3 || !dice_.chance(30)) return phrase;
    const bool inner = dice_.chance(40);
    return join(Words{phrase, "that", subject(inner, depth + 1), verb(inner)}, " ");
  }

  void sentence() {
    const uint64_t kind = dice_.roll(100);
    if (kind < 30) narrate();
    else if (kind < 55) act();
    else if (kind < 70) remember();
    else if (kind < 80) add();
    else if (kind < 90) list();
    else wonder();
  }

  void narrate() {
    const bool plural = dice_.chance(40);
    Words parts = {capital(subject(plural, 0)), verb(plural)};
    if (dice_.chance(60)) {
      parts.push_back(preposition());
      parts.push_back(described(dice_.chance(30)));
    }
    say(parts);
  }
  void act() {
    const Person& who = person();
    const Person& other = person();
    if (other.name != who.name && dice_.chance(40)) {
      say({who.name, "and", other.name, verb(true), described(false)});
    } else {
      say({who.name, verb(false), subject(dice_.chance(30), 1)});
    }
  }
  void remember() {
    const Person& who = person();
    const uint64_t form = dice_.roll(3);
    if (form == 0) say({"In", who.town, who.name, verb(false), noun(true)});
    else if (form == 1) say({"The", who.trade, "of", who.town, "is", who.name});
    else say({who.name + ", a", who.trade + ",", verb(false), preposition(), who.town});
  }
  void add() {
    const uint64_t a = dice_.roll(10);
    const uint64_t b = dice_.roll(10);
    say({person().name, "has", std::to_string(a), "and", std::to_string(b), noun(true) + ",",
         "that is", std::to_string(a + b)});
  }
  void list() {
    Words items;
    const uint64_t count = 2 + dice_.roll(3);
    for (uint64_t i = 0; i < count; ++i) items.push_back(noun());
    const Words back(items.rbegin(), items.rend());
    say({"(" + join(items, " ") + ")", "turns", "(" + join(back, " ") + ")"});
  }
  void wonder() {
    const bool plural = dice_.chance(50);
    say({plural ? "Do" : "Does", described(plural), frequent(words_.verbs) + "?",
         dice_.chance(50) ? "Yes, says" : "No, says", person().name});
  }

  const Lexicon& words_;
  Dice dice_;
  uint64_t topic_;
  std::vector<Person> people_;
  std::string text_;
};

}  // namespace

SyntheticLanguage::SyntheticLanguage(uint64_t seed) : lexicon_(std::make_unique<Lexicon>()) {
  Dice dice(stream_key(seed, "synthetic lexicon"));
  std::set<std::string> taken = {"a", "the", "that", "is", "of", "and", "has", "in", "by"};
  Lexicon& words = *lexicon_;
  words.seed = seed;
  words.nouns = invent_words(dice, taken, 240, 1, 3);
  words.verbs = invent_words(dice, taken, 120, 1, 2);
  words.adjectives = invent_words(dice, taken, 80, 1, 2);
  words.names = invent_words(dice, taken, 60, 2, 3);
  words.towns = invent_words(dice, taken, 40, 2, 3);
  for (Words* proper : {&words.names, &words.towns}) {
    for (std::string& word : *proper) word = capital(word);
  }
}

SyntheticLanguage::~SyntheticLanguage() = default;

std::string SyntheticLanguage::document(uint64_t index) const {
  return Writer<Lexicon>(*lexicon_, index).write();
}

SyntheticTextSummary write_synthetic_text(
    FileSystem& files, const std::string& path, uint64_t seed, int64_t count,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  constexpr size_t kBufferBytes = size_t{1} << 20U;
  const SyntheticLanguage language(seed);
  const auto file = files.create(path);
  SyntheticTextSummary summary;
  Hasher hasher;
  std::string buffer;
  const auto write_out = [&] {
    hasher.update(buffer.data(), buffer.size());
    file->append(buffer.data(), buffer.size());
    buffer.clear();
  };
  for (int64_t i = 0; i < count; ++i) {
    const std::string text = language.document(static_cast<uint64_t>(i));
    summary.bytes += static_cast<int64_t>(text.size());
    ++summary.documents;
    buffer += dump_json(Json{{"text", text}}) + "\n";
    if (buffer.size() >= kBufferBytes) {
      write_out();
      if (progress) progress(i + 1, count);
    }
  }
  write_out();
  file->sync();
  file->close();
  if (progress) progress(count, count);
  summary.file_hash = hash_hex(hasher.digest());
  return summary;
}

}  // namespace tutti::data
