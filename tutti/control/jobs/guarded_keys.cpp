#include "tutti/control/jobs/guarded_keys.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/text.h"

namespace tutti::control {
namespace {

constexpr const char* kOpensPort = "opens a port of the node";
constexpr const char* kReadsFile = "reads a file with the rights of the controller's account";
constexpr const char* kWritesFiles = "writes files with the rights of the controller's account";

constexpr std::array<GuardedKey, 8> kGuardedKeys = {{
    {"telemetry.metrics_port", kOpensPort},
    {"telemetry.metrics_address", kOpensPort},
    {"data.prepare.source", kReadsFile},
    {"data.prepare.tokenizer", kReadsFile},
    {"data.prepare.folder", kWritesFiles},
    {"data.cache", kWritesFiles},
    {"checkpoint.key_file", kReadsFile},
    {"checkpoint.store", "writes to an object store with the keys of the controller's account"},
}};

std::map<std::string, std::string> values_of(std::string_view yaml) {
  std::map<std::string, std::string> values;
  for (auto& [key, value] : flatten_yaml(yaml)) values[key] = std::move(value);
  return values;
}

std::string all_names() {
  std::vector<std::string> names;
  names.reserve(kGuardedKeys.size());
  for (const GuardedKey& each : kGuardedKeys) names.emplace_back(each.key);
  return join(names, ", ");
}

}  // namespace

const std::array<GuardedKey, 8>& guarded_keys() { return kGuardedKeys; }

const GuardedKey* find_guarded_key(std::string_view key) {
  const auto* const found = std::find_if(kGuardedKeys.begin(), kGuardedKeys.end(),
                                         [&](const GuardedKey& each) { return key == each.key; });
  return found == kGuardedKeys.end() ? nullptr : found;
}

std::vector<std::string> guarded_changes(std::string_view yaml, std::string_view trusted) {
  const auto now = values_of(yaml);
  const auto before = values_of(trusted);
  std::vector<std::string> changed;
  for (const GuardedKey& each : kGuardedKeys) {
    const auto set = now.find(each.key);
    const auto was = before.find(each.key);
    const bool is_set = set != now.end();
    const bool was_set = was != before.end();
    if (is_set != was_set || (is_set && set->second != was->second)) changed.emplace_back(each.key);
  }
  return changed;
}

std::vector<std::string> parse_guarded_keys(const std::string& text) {
  std::vector<std::string> keys;
  if (text == "none") return keys;
  if (text == "all") {
    keys.reserve(kGuardedKeys.size());
    for (const GuardedKey& each : kGuardedKeys) keys.emplace_back(each.key);
    return keys;
  }
  for (const std::string_view part : split(text, ',')) {
    const std::string_view key = trim(part);
    if (find_guarded_key(key) == nullptr) {
      fail(ErrorKind::usage, "--allow-keys: '{}' is not a guarded key; known: {}; or all, none",
           printable(std::string(key)), all_names());
    }
    keys.emplace_back(key);
  }
  return keys;
}

}  // namespace tutti::control
