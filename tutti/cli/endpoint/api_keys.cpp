#include "tutti/cli/endpoint/api_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/ledger/spend.h"

namespace tutti::cli {
namespace {

using endpoint::KeyLimits;

constexpr std::string_view kKeyPrefix = "tutti";
constexpr size_t kWordsOfKey = 4;
constexpr size_t kLongestName = 128;              // bytes
constexpr int64_t kMostPicoUsd = 10'000'000'000;  // of a token

struct LimitField {
  const char* name;  // in the file
  std::optional<int64_t> KeyLimits::*value;
  const char* text;
  bool is_money = false;
};
constexpr std::array<LimitField, 4> kLimitFields = {
    {{"tokens", &KeyLimits::tokens, "tokens"},
     {"usd", &KeyLimits::micro_usd, "USD", true},
     {"requests_per_minute", &KeyLimits::requests_per_minute, "requests per minute"},
     {"tokens_per_minute", &KeyLimits::tokens_per_minute, "tokens per minute"}}};

std::string amount_text(const LimitField& field, int64_t value) {
  return field.is_money ? control::format_micro(value) : std::to_string(value);
}

int64_t parse_amount(const LimitField& field, const std::string& text, const std::string& key) {
  return field.is_money ? control::parse_micro(text, key) : parse_count(text, key);
}

bool is_hex(std::string_view text, size_t size) {
  return text.size() == size &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "tokens=1000"; throws usage naming `where`.
void read_limit(std::string_view word, const std::string& where, KeyLimits& limits) {
  const size_t sign = word.find('=');
  for (const LimitField& field : kLimitFields) {
    if (sign == std::string_view::npos || word.substr(0, sign) != field.name) continue;
    limits.*field.value =
        parse_amount(field, std::string(word.substr(sign + 1)), where + ": " + field.name);
    return;
  }
  fail(ErrorKind::corrupt,
       "{}: '{}' is not a limit; write tokens=N, usd=X, requests_per_minute=N or "
       "tokens_per_minute=N",
       where, printable(word));
}

// The id in a line of the file; empty: it is not that of a key.
std::string id_in(std::string_view line) {
  if (trim(line).empty() || starts_with(line, "#")) return {};
  const auto words = split(trim(line), ' ');
  return words.size() >= kWordsOfKey ? std::string(words[1]) : std::string();
}

}  // namespace

ApiKeys ApiKeys::read(FileSystem& files, const std::string& path) {
  return parse(read_file(files, path), path);
}

ApiKeys ApiKeys::parse(const std::string& text, const std::string& path) {
  ApiKeys keys;
  int64_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trim(line).empty() || starts_with(line, "#")) continue;
    const auto words = split(trim(line), ' ');
    const bool is_key = is_utf8(line) && words.size() >= kWordsOfKey && is_hex(words[1], 12) &&
                        is_hex(words[2], 32) && is_hex(words[3], 64);
    const std::string where = fmt::format("{}:{}", path, number);
    if (!is_key) {
      fail(ErrorKind::corrupt,
           "{}: expected NAME ID SALT HASH [LIMIT=N ...]; --add-api-key writes such lines", where);
    }
    Key key{std::string(words[2]), std::string(words[3]), {}};
    key.limits.name = words[0];
    for (size_t i = kWordsOfKey; i < words.size(); ++i) read_limit(words[i], where, key.limits);
    keys.keys_[std::string(words[1])] = std::move(key);
  }
  return keys;
}

std::set<std::string> ApiKeys::ids_in_file(const std::string& text) {
  std::set<std::string> ids;
  for (const std::string_view line : split(text, '\n')) {
    if (std::string id = id_in(line); !id.empty()) ids.insert(std::move(id));
  }
  return ids;
}

void ApiKeys::keep_only(const std::set<std::string>& ids) {
  std::erase_if(keys_, [&](const auto& key) { return ids.count(key.first) == 0; });
}

std::optional<std::string> ApiKeys::identify(const std::string& key) const {
  const auto parts = split(key, '-');
  if (parts.size() != 3 || parts[0] != kKeyPrefix) return std::nullopt;
  const auto found = keys_.find(std::string(parts[1]));
  if (found == keys_.end()) return std::nullopt;
  const bool is_it = control::same_text(
      control::sha256_hex(found->second.salt + std::string(parts[2])), found->second.hash);
  return is_it ? std::optional(found->first) : std::nullopt;
}

std::map<std::string, KeyLimits> ApiKeys::limits() const {
  std::map<std::string, KeyLimits> all;
  for (const auto& [id, key] : keys_) all[id] = key.limits;
  return all;
}

std::string add_api_key(FileSystem& files, const std::string& path, const KeyLimits& limits) {
  const std::string& name = limits.name;
  const bool is_word =
      !name.empty() && name.size() <= kLongestName && is_utf8(name) && printable(name) == name &&
      std::none_of(name.begin(), name.end(), [](char c) { return c == ' ' || c == '#'; });
  if (!is_word) {
    fail(ErrorKind::usage,
         "the name of an API key '{}': give one of at most {} bytes of UTF-8 without spaces",
         printable(name.substr(0, kLongestName)), kLongestName);
  }
  std::string text = files.exists(path) ? read_file(files, path) : std::string(kApiKeysHeading);
  if (!text.empty() && text.back() != '\n') text += '\n';
  const std::string id = control::random_hex(6);
  const std::string secret = control::random_hex(32);
  const std::string salt = control::random_hex(16);
  text += fmt::format("{} {} {} {}", name, id, salt, control::sha256_hex(salt + secret));
  for (const LimitField& field : kLimitFields) {
    const auto& value = limits.*field.value;
    if (value) text += fmt::format(" {}={}", field.name, amount_text(field, *value));
  }
  write_file_atomic(files, path, text + "\n");
  return fmt::format("{}-{}-{}", kKeyPrefix, id, secret);
}

void remove_api_key(FileSystem& files, const std::string& path, const std::string& id) {
  const std::string text = files.exists(path) ? read_file(files, path) : std::string();
  std::string kept;
  bool found = false;
  for (const std::string_view line : split(text, '\n')) {
    if (!id.empty() && id_in(line) == id) {
      found = true;
    } else if (!line.empty()) {
      kept += std::string(line) + "\n";
    }
  }
  if (!found) fail(ErrorKind::not_found, "{}: there is no API key '{}'", path, printable(id));
  write_file_atomic(files, path, kept);
}

std::string id_of_api_key(const std::string& key) {
  const auto parts = split(key, '-');
  return parts.size() == 3 ? std::string(parts[1]) : std::string();
}

std::string key_limits_text(const KeyLimits& limits) {
  std::vector<std::string> parts;
  for (const LimitField& field : kLimitFields) {
    const auto& value = limits.*field.value;
    if (value) parts.push_back(fmt::format("{} {}", amount_text(field, *value), field.text));
  }
  return parts.empty() ? "none" : join(parts, ", ");
}

void add_token_price_options(CLI::App& command, TokenPriceOptions& options) {
  command
      .add_option("--usd-per-million-prompt-tokens", options.prompt,
                  "Price that budgets and the record of use count by; default 0")
      ->type_name("X");
  command.add_option("--usd-per-million-answer-tokens", options.answer, "Likewise")->type_name("X");
}

endpoint::TokenPrices parse_token_prices(const TokenPriceOptions& options) {
  // USD per million tokens are 10^-6 USD per token: their millionths are 10^-12 USD per token.
  const auto price = [](const std::string& text, const char* key) {
    if (text.empty()) return int64_t{0};
    const int64_t pico_usd = control::parse_micro(text, key);
    if (pico_usd <= kMostPicoUsd) return pico_usd;
    fail(ErrorKind::usage, "{}: {} USD is more than {}", key, text,
         control::format_micro(kMostPicoUsd));
  };
  return {price(options.prompt, "--usd-per-million-prompt-tokens"),
          price(options.answer, "--usd-per-million-answer-tokens")};
}

void add_key_limit_options(CLI::App& command, KeyLimitOptions& options) {
  command
      .add_option("--key-tokens", options.tokens,
                  "Budget of the new key: tokens of prompts and answers in all, such as 1M")
      ->type_name("N");
  command.add_option("--key-usd", options.usd, "Budget of the new key in USD")->type_name("X");
  command
      .add_option("--key-requests-per-minute", options.requests_per_minute,
                  "Requests that the new key may send in a minute; beyond it the answer is 429")
      ->type_name("N");
  command
      .add_option("--key-tokens-per-minute", options.tokens_per_minute,
                  "Tokens of prompts and answers that it may use in a minute")
      ->type_name("N");
}

KeyLimits parse_key_limits(const std::string& name, const KeyLimitOptions& options) {
  KeyLimits limits;
  limits.name = name;
  const std::array<std::pair<const std::string*, const char*>, 4> given = {
      {{&options.tokens, "--key-tokens"},
       {&options.usd, "--key-usd"},
       {&options.requests_per_minute, "--key-requests-per-minute"},
       {&options.tokens_per_minute, "--key-tokens-per-minute"}}};
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].first->empty()) continue;
    const int64_t value = parse_amount(kLimitFields[i], *given[i].first, given[i].second);
    const bool is_rate = i >= 2;
    if (value < 0 || (is_rate && value == 0)) {
      fail(ErrorKind::usage, "{}: '{}' is not an amount above 0", given[i].second, *given[i].first);
    }
    limits.*kLimitFields[i].value = value;
  }
  return limits;
}

}  // namespace tutti::cli
