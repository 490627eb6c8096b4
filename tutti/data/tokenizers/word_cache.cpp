#include "tutti/data/tokenizers/word_cache.h"

#include <algorithm>
#include <cstring>

#include "tutti/data/tokenizers/mix.h"

namespace tutti::data {
namespace {

constexpr size_t kEntries = size_t{1} << 15;

uint64_t hash_word(std::string_view word) {
  uint64_t words[4] = {0, 0, 0, word.size()};
  std::memcpy(words, word.data(), word.size());
  return mix(mix(words[0], words[1]), mix(words[2], words[3]));
}

}  // namespace

WordCache::WordCache() : entries_(kEntries) {}

WordCache::Entry* WordCache::entry(std::string_view word) {
  if (word.empty() || word.size() > kMostBytes) return nullptr;
  return &entries_[hash_word(word) & (kEntries - 1)];
}

bool WordCache::get(const Entry* entry, std::string_view word, std::vector<int32_t>& out) {
  if (entry == nullptr || entry->bytes != word.size() ||
      std::memcmp(entry->key, word.data(), word.size()) != 0) {
    return false;
  }
  out.insert(out.end(), entry->ids, entry->ids + entry->count);
  return true;
}

void WordCache::keep(Entry* entry, std::string_view word, std::span<const int32_t> ids) {
  if (entry == nullptr || ids.size() > kMostIds) return;
  entry->bytes = static_cast<uint8_t>(word.size());
  entry->count = static_cast<uint8_t>(ids.size());
  std::memcpy(entry->key, word.data(), word.size());
  std::copy(ids.begin(), ids.end(), entry->ids);
}

}  // namespace tutti::data
