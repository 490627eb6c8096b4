// The file of an endpoint's API keys. One line for each: NAME ID SALT HASH [LIMIT=N ...], where
// HASH is SHA-256 of salt and secret; the keys themselves are written nowhere. A key is
// tutti-ID-SECRET. Limits are tokens, usd, requests_per_minute and tokens_per_minute
// (endpoint/key_meter.h). Lines that are empty or start with # are skipped.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "tutti/base/file.h"
#include "tutti/endpoint/key_meter.h"

namespace tutti::cli {

inline constexpr const char* kApiKeysHeading =
    "# API keys of `tutti endpoint --api-key-file`: name, id, salt, hash, limits.\n";

class ApiKeys {
 public:
  // Throws not_found, and corrupt naming the line.
  static ApiKeys read(FileSystem& files, const std::string& path);
  static ApiKeys parse(const std::string& text, const std::string& path);

  // Its id; absent: it is none of these. Takes as long whatever of the secret is right.
  std::optional<std::string> identify(const std::string& key) const;
  size_t size() const { return keys_.size(); }
  // Withdraws all others.
  void keep_only(const std::set<std::string>& ids);
  // Those in the text of a file, damaged or not.
  static std::set<std::string> ids_in_file(const std::string& text);
  std::map<std::string, endpoint::KeyLimits> limits() const;  // by id

 private:
  struct Key {
    std::string salt, hash;
    endpoint::KeyLimits limits;
  };
  std::map<std::string, Key> keys_;  // by id
};

// Makes a key with `limits`, adds its line to the file at `path`, which may be new, and returns it.
// Throws usage for a name that is empty, long, has white space, or is no printable UTF-8.
std::string add_api_key(FileSystem& files, const std::string& path,
                        const endpoint::KeyLimits& limits);
// Takes its line out of the file. Throws not_found for an id that is not there.
void remove_api_key(FileSystem& files, const std::string& path, const std::string& id);
std::string id_of_api_key(const std::string& key);

// "5 USD, 1000000 tokens, 60 requests per minute"; "none".
std::string key_limits_text(const endpoint::KeyLimits& limits);

// USD per million tokens, at most six decimals: --usd-per-million-prompt-tokens, ...-answer-tokens.
struct TokenPriceOptions {
  std::string prompt, answer;
};
void add_token_price_options(CLI::App& command, TokenPriceOptions& options);
endpoint::TokenPrices parse_token_prices(const TokenPriceOptions& options);

// What --key-tokens, --key-usd, --key-requests-per-minute and --key-tokens-per-minute say.
struct KeyLimitOptions {
  std::string tokens, usd, requests_per_minute, tokens_per_minute;
};
void add_key_limit_options(CLI::App& command, KeyLimitOptions& options);
endpoint::KeyLimits parse_key_limits(const std::string& name, const KeyLimitOptions& options);

}  // namespace tutti::cli
