// Keys of a recipe that reach beyond the run: they open ports of the machine, or name files that
// the account of the controller may read or write and the submitter perhaps not, or an object store
// that is written with its keys. A submitted recipe may set them where an operator in all projects
// submits it, or where the site allows the key.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::control {

struct GuardedKey {
  const char* key;     // "telemetry.metrics_address"
  const char* effect;  // "opens a port of the node"
};
const std::array<GuardedKey, 8>& guarded_keys();
const GuardedKey* find_guarded_key(std::string_view key);  // null: it is none

// Those that `yaml`, a resolved recipe, sets otherwise than `trusted`, one that an admin installed
// or that of all defaults. In the order of guarded_keys().
std::vector<std::string> guarded_changes(std::string_view yaml, std::string_view trusted);

// "a,b", "all" or "none"; throws usage naming the first that is not a guarded key.
std::vector<std::string> parse_guarded_keys(const std::string& text);

}  // namespace tutti::control
