#include "tutti/data/tokenizers/charsmap.h"

#include <cstring>

#include "tutti/base/error.h"

namespace tutti::data {
namespace {

uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & (1U << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & ((1U << 31) | 0xFF); }

}  // namespace

Charsmap::Charsmap(std::string_view compiled, const std::string& origin) {
  if (compiled.empty()) return;
  uint32_t bytes = 0;
  if (compiled.size() >= 4) std::memcpy(&bytes, compiled.data(), 4);
  if (compiled.size() < 4 || bytes == 0 || bytes % 4 != 0 || bytes > compiled.size() - 4) {
    fail(ErrorKind::corrupt,
         "'{}': the precompiled charsmap of {} bytes is damaged: its trie has {} bytes; take the "
         "tokenizer's file from its source again",
         origin, compiled.size(), bytes);
  }
  units_.resize(bytes / 4);
  std::memcpy(units_.data(), compiled.data() + 4, bytes);
  replacements_ = compiled.substr(4 + bytes);
  check(origin);
  for (unsigned first = 0; first < 128; ++first) {
    uint32_t node = offset_of(units_[0]);
    bool ends = false;
    if (!child(node, static_cast<unsigned char>(first), ends)) continue;
    for (unsigned second = 0; second < 128; ++second) {
      uint32_t next = node;
      bool unused = false;
      if (ends || child(next, static_cast<unsigned char>(second), unused)) {
        pairs_[first][second >> 6] |= uint64_t{1} << (second & 63);
      }
    }
  }
}

// Of all units that can be reached: values are replacements that end. Children outside the array
// are not children.
void Charsmap::check(const std::string& origin) const {
  std::vector<bool> seen(units_.size());
  std::vector<uint32_t> nodes = {offset_of(units_[0])};
  while (!nodes.empty()) {
    const uint32_t node = nodes.back();
    nodes.pop_back();
    for (unsigned label = 1; label < 256; ++label) {
      uint32_t next = node;
      bool has_value = false;
      if (!child(next, static_cast<unsigned char>(label), has_value)) continue;
      const uint32_t unit = node ^ label;
      if (seen[unit]) continue;
      seen[unit] = true;
      const uint32_t value = has_value && next < units_.size() ? units_[next] & 0x7FFFFFFFU : 0;
      if (has_value &&
          (next >= units_.size() || replacements_.find('\0', value) == std::string::npos)) {
        fail(ErrorKind::corrupt,
             "'{}': the precompiled charsmap is damaged: a rule's replacement at {} is outside its "
             "{} "
             "bytes; take the tokenizer's file from its source again",
             origin, value, replacements_.size());
      }
      nodes.push_back(next);
    }
  }
}

bool Charsmap::child(uint32_t& node, unsigned char label, bool& has_value) const {
  const uint32_t unit = node ^ label;
  if (label == 0 || unit >= units_.size() || label_of(units_[unit]) != label) return false;
  has_value = (units_[unit] >> 8 & 1) != 0;
  node = unit ^ offset_of(units_[unit]);
  return true;
}

CharsmapMatch Charsmap::match(std::string_view text, bool shortest) const {
  CharsmapMatch found;
  if (units_.empty()) return found;
  uint32_t node = offset_of(units_[0]);
  for (size_t at = 0; at < text.size(); ++at) {
    bool has_value = false;
    if (!child(node, static_cast<unsigned char>(text[at]), has_value)) break;
    if (!has_value) continue;
    const uint32_t value = units_[node] & 0x7FFFFFFFU;
    found = {at + 1, std::string_view(replacements_).substr(value)};
    found.replacement = found.replacement.substr(0, found.replacement.find('\0'));
    if (shortest) break;
  }
  return found;
}

}  // namespace tutti::data
