// The API keys of an endpoint that runs: who may ask, what each may use and has used. The file of
// keys is read again when it has changed; what they use goes into the file of their use.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/cli/endpoint/api_keys.h"
#include "tutti/endpoint/key_meter.h"
#include "tutti/endpoint/use_log.h"

namespace tutti::cli {

struct KeySettings {
  std::string key_file;
  std::string use_file;  // empty: use is not recorded, and budgets are refused
  endpoint::TokenPrices prices;
};

class LiveKeys {
 public:
  // Continues with what the file of use says. Throws as ApiKeys::read, and usage for limits that
  // the settings cannot keep.
  LiveKeys(FileSystem& files, KeySettings settings);
  LiveKeys(const LiveKeys&) = delete;
  LiveKeys& operator=(const LiveKeys&) = delete;

  std::optional<std::string> identify(const std::string& key) const;  // from any thread
  endpoint::KeyMeter& meter() { return *meter_; }
  size_t size() const;

  // To be called every now and then by one thread: makes the file of use durable, and takes over
  // changes of the keys. A damaged file of keys adds none, which is said once; keys that are no
  // longer among those in it are withdrawn.
  void tend();

 private:
  void check_limits(const ApiKeys& keys) const;
  void take(const std::string& text);
  void withdraw_missing();

  FileSystem& files_;
  const KeySettings settings_;
  std::unique_ptr<endpoint::UseLog> log_;
  std::unique_ptr<endpoint::KeyMeter> meter_;
  std::string text_;  // of the file of keys, as it was taken or refused last
  std::string reported_;
  mutable std::mutex mutex_;  // of keys_
  ApiKeys keys_;
};

}  // namespace tutti::cli
