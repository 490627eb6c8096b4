#include "tutti/mlperf/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "tutti/base/text.h"
#include "tutti/mlperf/ruleset.h"

namespace tutti::mlperf {
namespace {

// Below these, numbers are those of anything else; 3.0 is the first round with rules here, and a
// round a year makes two of ten for a long time.
constexpr int kFirstMajor = 3;
constexpr int kLastMajor = 20;

std::string small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Takes a prefix off `rest`, when it has it.
bool take(std::string_view& rest, std::string_view prefix) {
  if (!starts_with(rest, prefix)) return false;
  rest.remove_prefix(prefix.size());
  return true;
}

// Takes a number of up to three digits off `rest`.
std::optional<int> take_number(std::string_view& rest) {
  size_t used = 0;
  while (used < rest.size() && is_digit(rest[used])) ++used;
  if (used == 0 || used > 3) return std::nullopt;
  int number = 0;
  std::from_chars(rest.data(), rest.data() + used, number);
  rest.remove_prefix(used);
  return number;
}

// ".1": 1. A point without a number behind it is left.
std::optional<int> take_part(std::string_view& rest) {
  std::string_view behind = rest;
  if (!take(behind, ".")) return std::nullopt;
  const auto number = take_number(behind);
  if (number) rest = behind;
  return number;
}

int newest_major() {
  int newest = 0;
  for (const std::string& version : ruleset_versions()) {
    std::string_view rest = version;
    newest = std::max(newest, take_number(rest).value_or(0));
  }
  return newest;
}

// "draft" of "v7.0-draft", "rc1" of "v7.0 rc1".
bool is_preliminary(std::string_view word) {
  constexpr std::array<std::string_view, 7> kWords = {"draft", "rc",  "alpha",  "beta",
                                                      "pre",   "dev", "preview"};
  const size_t letters = std::min(word.find_first_of("0123456789-_. "), word.size());
  return std::find(kWords.begin(), kWords.end(), word.substr(0, letters)) != kWords.end();
}

bool separates(char c) { return c == '-' || c == '_' || c == ' ' || c == '.'; }

// The round that the whole name of a folder means; "" when it is none.
std::string round_of_name(std::string_view name) {
  const std::string text = small_letters(name);
  std::string_view rest = text;
  bool announced = false;  // something says that what follows is a round
  for (const std::string_view word : {"mlperf", "training", "results", "round"}) {
    if (!take(rest, word)) continue;
    announced = announced || word != "mlperf";
    while (!rest.empty() && separates(rest.front())) rest.remove_prefix(1);
  }
  const bool v = take(rest, "v");
  const auto major = take_number(rest);
  if (!major || *major < kFirstMajor || *major > kLastMajor) return {};
  const auto minor = take_part(rest);
  // Without a v it could be any number, such as that of Llama 3.1: of rounds the second part is 0
  // or 1.
  const bool round_like = minor && *minor <= 1 && *major > kFirstMajor;
  if (!v && !round_like) return {};
  if (!minor && !announced && *major <= newest_major()) return {};
  const auto patch = take_part(rest);
  if (patch && (*patch != 0 || take_part(rest))) return {};
  std::string round = minor ? fmt::format("v{}.{}", *major, *minor) : fmt::format("v{}", *major);
  if (rest.empty()) return round;
  const bool apart = separates(rest.front());
  while (!rest.empty() && separates(rest.front())) rest.remove_prefix(1);
  if (is_preliminary(rest)) return round + "-" + std::string(rest);
  // A copy of a repository: "training_results_v6.0-main".
  return apart && announced && v && minor ? round : std::string();
}

// Calls `use` with every "v4.1" between characters that are part of no longer number.
template <typename Use>
void for_rounds_inside(std::string_view path, const Use& use) {
  const auto part = [](char c) { return c == '/' || c == '_' || c == '-'; };
  const auto digits = [&](size_t at) {
    while (at < path.size() && is_digit(path[at])) ++at;
    return at;
  };
  for (size_t at = path.find('v'); at != std::string_view::npos; at = path.find('v', at + 1)) {
    const size_t point = digits(at + 1);
    if (point == at + 1 || point >= path.size() || path[point] != '.') continue;
    const size_t end = digits(point + 1);
    if (end == point + 1 || (at > 0 && !part(path[at - 1]))) continue;
    if (end < path.size() && path[end] != '/' && path[end] != '_') continue;
    use(std::string(path.substr(at, end - at)));
  }
}

}  // namespace

std::string round_of(std::string_view path) {
  std::string known;
  std::string unknown;
  const auto consider = [&](std::string round) {
    std::string& kind = ruleset_of_round(round).empty() ? unknown : known;
    if (kind.empty()) kind = std::move(round);
  };
  for (const std::string_view name : split(path, '/')) {
    std::string whole = round_of_name(name);
    if (!whole.empty()) consider(std::move(whole));
    else for_rounds_inside(small_letters(name), consider);
  }
  return known.empty() ? unknown : known;
}

std::string ruleset_of_round(std::string_view round) {
  for (const std::string& version : ruleset_versions()) {
    const std::string own = "v" + version;
    if (own == round || own == std::string(round) + ".0") return version;
  }
  return {};
}

}  // namespace tutti::mlperf
