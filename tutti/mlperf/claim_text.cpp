#include "tutti/mlperf/claim_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/chip_names.h"
#include "tutti/catalog/yaml_list.h"

namespace tutti::mlperf {
namespace {

// A number and what is written behind it without a blank: "9.87min", "$1.2M", "8x".
struct Token {
  std::string word;  // lower case, as written
  bool dollar = false;
  std::optional<double> number;
  std::string digits;  // of the number, without commas
  std::string unit;    // behind the number; "" when a blank follows
};

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

Token token_of(std::string_view word) {
  Token token;
  token.word = lower(word);
  std::string_view rest = token.word;
  if (starts_with(rest, "$")) {
    token.dollar = true;
    rest.remove_prefix(1);
  }
  std::string digits;
  size_t used = 0;
  while (used < rest.size() && (std::isdigit(static_cast<unsigned char>(rest[used])) != 0 ||
                                (rest[used] == '.' || rest[used] == ','))) {
    if (rest[used] != ',') digits += rest[used];
    ++used;
  }
  double number = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (!digits.empty() && status == std::errc() && end == digits.data() + digits.size()) {
    token.number = number;
    token.digits = digits;
    token.unit = std::string(rest.substr(used));
  }
  return token;
}

std::vector<Token> tokens_of(const std::string& text) {
  std::vector<Token> tokens;
  std::string word;
  const auto flush = [&] {
    while (!word.empty() &&
           (word.back() == ',' || word.back() == '.' || word.back() == ';' || word.back() == ':')) {
      word.pop_back();
    }
    if (!word.empty()) tokens.push_back(token_of(word));
    word.clear();
  };
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '(' || c == ')') flush();
    else word += c;
  }
  flush();
  return tokens;
}

// Minutes of one of a unit; 0 when it is none of time.
double minutes_of(const std::string& unit) {
  struct Unit {
    const char* name;
    double minutes;
  };
  constexpr std::array<Unit, 14> kUnits = {{{"min", 1},
                                            {"mins", 1},
                                            {"minute", 1},
                                            {"minutes", 1},
                                            {"m", 1},
                                            {"s", 1.0 / 60},
                                            {"sec", 1.0 / 60},
                                            {"seconds", 1.0 / 60},
                                            {"h", 60},
                                            {"hour", 60},
                                            {"hours", 60},
                                            {"d", 1440},
                                            {"day", 1440},
                                            {"days", 1440}}};
  for (const Unit& known : kUnits) {
    if (unit == known.name) return known.minutes;
  }
  return 0;
}

double scale_of(const std::string& unit) {
  if (unit == "k") return 1e3;
  if (unit == "m" || unit == "million") return 1e6;
  return 1;
}

// "one H100", "eight H200".
double count_word(const std::string& word) {
  constexpr std::array<std::pair<const char*, double>, 9> kWords = {{{"one", 1},
                                                                     {"single", 1},
                                                                     {"two", 2},
                                                                     {"three", 3},
                                                                     {"four", 4},
                                                                     {"eight", 8},
                                                                     {"sixteen", 16},
                                                                     {"hundred", 100},
                                                                     {"thousand", 1000}}};
  for (const auto& [name, count] : kWords) {
    if (word == name) return count;
  }
  return 0;
}

// Minutes of "7:04" (minutes, seconds) or "1:02:03" (hours first); nothing for other words.
std::optional<double> clock_minutes(const std::string& word) {
  double seconds = 0;
  const auto parts = split(word, ':');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  for (size_t i = 0; i < parts.size(); ++i) {
    int value = 0;
    const auto [end, status] =
        std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), value);
    const bool whole = status == std::errc() && end == parts[i].data() + parts[i].size();
    if (!whole || value < 0 || (i > 0 && (parts[i].size() != 2 || value > 59))) return std::nullopt;
    seconds = 60 * seconds + value;
  }
  return seconds / 60;
}

// Words of product names and of prose between a number and its chip: "8 AMD Instinct MI300X".
bool is_filler(const std::string& word) {
  constexpr std::array<const char*, 18> kWords = {
      "nvidia", "amd",   "intel",  "google", "habana", "instinct", "blackwell",   "hopper", "grace",
      "ultra",  "cloud", "tensor", "core",   "gpu",    "gpus",     "accelerator", "chips",  "of"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

// The chip that `word` names as a whole: a word that only holds a chip's name, such as
// "h100gpu9000", is none. Names as published results have them count too.
const catalog::Chip* chip_word(const ClaimBasis& basis, const std::string& word) {
  const auto exact = [&](const std::string& name) -> const catalog::Chip* {
    const catalog::Chip* chip = catalog::find_chip(basis.catalog, name);
    if (chip == nullptr) return nullptr;
    const std::string plain = catalog::plain_name(name);
    const auto same = [&](const std::string& known) { return plain == catalog::plain_name(known); };
    const auto& aliases = chip->entry.aliases;
    const bool known =
        same(chip->name) || std::any_of(aliases.begin(), aliases.end(), same) ||
        std::any_of(basis.published.begin(), basis.published.end(),
                    [&](const catalog::PublishedResult& row) { return same(row.accelerator); });
    return known ? chip : nullptr;
  };
  if (const catalog::Chip* chip = exact(word)) return chip;
  return ends_with(word, "s") ? exact(word.substr(0, word.size() - 1)) : nullptr;
}

// "h20", but not "fp8", "v5.1" or "steps".
bool may_be_chip(const std::string& word) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (word.size() < 2 || is_digit(word[0]) || (word[0] == 'v' && is_digit(word[1]))) return false;
  for (const char* format : {"fp", "bf", "nvfp", "mxfp", "int"}) {
    if (starts_with(word, format)) return false;
  }
  return std::any_of(word.begin(), word.end(), is_digit);
}

class Reader {
 public:
  Reader(const std::string& text, const ClaimBasis& basis, Claim& claim)
      : text_(text), basis_(basis), claim_(claim), tokens_(tokens_of(text)) {}

  void read() {
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      const Token& token = tokens_[at_];
      if (read_model(token)) continue;
      size_t words = 0;
      if (const auto* chip = chip_at(at_, words)) {
        set_chip(chip->name);
        at_ += words - 1;
      } else if (const auto minutes = clock_minutes(token.word)) {
        set_minutes(*minutes, 0.5 / 60);
      } else if (token.number) {
        read_number(token);
      } else if (token.word == "pcie" || token.word == "nvl") {
        card_ = token.word;
      } else if (const double count = count_word(token.word); count > 0 && counts_chips()) {
        set_accelerators(count);
      }
    }
    set_card();
    if (claim_.chip.empty() && !unknown_chip_.empty()) {
      std::vector<std::string> names;
      for (const catalog::Chip& chip : basis_.catalog.chips) names.push_back(chip.name);
      fail(ErrorKind::not_found, "claim '{}': '{}' is no chip of the catalog; known: {}", text_,
           unknown_chip_, join(names, ", "));
    }
  }

 private:
  const Token* next() const { return at_ + 1 < tokens_.size() ? &tokens_[at_ + 1] : nullptr; }

  // The chip that `words` tokens from `at` on name together: "Gaudi 2", "TPU v5e".
  const catalog::Chip* chip_at(size_t at, size_t& words) const {
    constexpr size_t kMostWords = 7;  // "AMD Instinct MI325X 256GB HBM3E DLC"
    for (words = std::min(kMostWords, tokens_.size() - at); words > 0; --words) {
      std::string name;
      for (size_t i = at; i < at + words; ++i) name += tokens_[i].word;
      if (const auto* chip = chip_word(basis_, name)) return chip;
    }
    return nullptr;
  }

  // What the words after this one are about: "1,024 NVIDIA H100 GPUs", "1024 accelerators".
  bool counts_chips() const {
    size_t others = 0;  // one word that says nothing may be between
    for (size_t i = at_ + 1; i < tokens_.size() && others < 2; ++i) {
      const std::string& word = tokens_[i].word;
      size_t words = 0;
      if (chip_at(i, words) != nullptr || word == "accelerators" || word == "accelerator" ||
          word == "gpus" || word == "gpu" || word == "chips" || word == "tpus") {
        return true;
      }
      if (tokens_[i].number) return false;
      if (!is_filler(word)) ++others;
    }
    return false;
  }

  [[noreturn]] void twice(const char* what) const {
    fail(ErrorKind::usage, "claim '{}' gives {} twice; write one claim at a time", text_, what);
  }

  bool read_model(const Token& token) {
    const auto* benchmark = catalog::find_benchmark(basis_.benchmarks, token.word);
    if (benchmark == nullptr) return false;
    // "70B LoRA" and "GPT-3 175B" name one model twice.
    if (!claim_.benchmark.empty() && claim_.benchmark != benchmark->name) twice("the model");
    claim_.benchmark = benchmark->name;
    return true;
  }

  void set_chip(const std::string& name) {
    if (!claim_.chip.empty() && claim_.chip != name) twice("the chip");
    claim_.chip = name;
  }

  // "H100 GPUs (PCIe)": not the chip that was named, but the card of it.
  void set_card() {
    if (card_.empty() || claim_.chip.empty()) return;
    const auto* card = catalog::find_chip(basis_.catalog, claim_.chip + card_);
    if (card == nullptr) {
      fail(ErrorKind::not_found,
           "claim '{}': the catalog has no {} {}, and its peak is not that of the {}", text_,
           claim_.chip, card_, claim_.chip);
    }
    claim_.chip = card->name;
  }

  void set_accelerators(double count) {
    if (count != std::floor(count) || count < 1 || count > 1e9) {
      fail(ErrorKind::usage, "claim '{}': {} is not a number of accelerators", text_, count);
    }
    if (claim_.accelerators != 0) twice("the number of accelerators");
    claim_.accelerators = std::llround(count);
  }

  void set_minutes(double minutes, double rounding) {
    if (claim_.minutes) twice("the time");
    claim_.minutes = minutes;
    claim_.rounding_minutes = rounding;
  }

  static void set(std::optional<double>& to, double value) { to = value; }

  void read_number(const Token& token) {
    const double number = *token.number;
    std::string unit = token.unit;
    const Token* after = next();
    const std::string following = after == nullptr ? "" : after->word;
    if (token.dollar || following == "usd" || following == "dollars" || unit == "usd") {
      if (claim_.cost_usd) twice("the cost");
      set(claim_.cost_usd, number * scale_of(unit.empty() ? following : unit));
      return;
    }
    if (unit == "x" || unit == "\xc3\x97") {
      size_t words = 0;
      const bool counts = after != nullptr && chip_at(at_ + 1, words) != nullptr;
      if (counts) set_accelerators(number);
      else set_speedup(number);
      return;
    }
    // "8xH100"
    if (starts_with(unit, "x") && chip_word(basis_, unit.substr(1)) != nullptr) {
      set_accelerators(number);
      set_chip(chip_word(basis_, unit.substr(1))->name);
      return;
    }
    if (unit == "%" && (following == "faster" || following == "speedup")) {
      set_speedup(1 + number / 100);
      return;
    }
    read_time_or_count(token, unit.empty() ? following : unit, !unit.empty());
  }

  void set_speedup(double factor) {
    if (claim_.speedup) twice("the speed-up");
    set(claim_.speedup, factor);
  }

  void read_time_or_count(const Token& token, const std::string& unit, bool attached) {
    const double number = *token.number;
    if (const double minutes = minutes_of(unit); minutes > 0) {
      set_minutes(number * minutes, rounding_of(token.digits) * minutes);
      return;
    }
    if (unit == "nodes" || unit == "node") {
      fail(ErrorKind::usage, "claim '{}': {} nodes have how many accelerators? Give their number",
           text_, number);
    }
    if (attached && unit != "k") return;
    if (!counts_chips()) {
      if (!attached && next() != nullptr && may_be_chip(next()->word)) {
        unknown_chip_ = next()->word;
      }
      return;
    }
    set_accelerators(number * (attached ? scale_of(unit) : 1));
    // "8k" is said of 8,192 as well.
    if (attached && number == std::floor(number)) {
      claim_.accelerators_or = 1024 * std::llround(number);
    }
  }

  const std::string& text_;
  const ClaimBasis& basis_;
  Claim& claim_;
  std::vector<Token> tokens_;
  std::string card_;          // "pcie" or "nvl", apart from the chip
  std::string unknown_chip_;  // a word after a number that is like a chip's name
  size_t at_ = 0;
};

}  // namespace

void read_claim(const std::string& text, const ClaimBasis& basis, Claim& claim) {
  Reader(text, basis, claim).read();
}

}  // namespace tutti::mlperf
