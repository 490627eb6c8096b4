// The words that one thread met last, with their ids: most words of a text are frequent ones. 2
// MiB. Longer words and those of many ids are not kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::data {

class WordCache {
 public:
  static constexpr size_t kMostBytes = 28;
  static constexpr size_t kMostIds = 8;
  struct Entry {        // 64 bytes
    uint8_t bytes = 0;  // 0: empty
    uint8_t count = 0;
    char key[kMostBytes] = {};
    int32_t ids[kMostIds] = {};
  };

  WordCache();
  // The entry of `word`, filled or to be filled by keep; null for a word that is never kept.
  Entry* entry(std::string_view word);
  // Appends the ids to `out` when `entry` holds `word`.
  static bool get(const Entry* entry, std::string_view word, std::vector<int32_t>& out);
  static void keep(Entry* entry, std::string_view word, std::span<const int32_t> ids);

 private:
  std::vector<Entry> entries_;
};

}  // namespace tutti::data
