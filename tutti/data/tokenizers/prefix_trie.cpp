#include "tutti/data/tokenizers/prefix_trie.h"

#include <algorithm>

namespace tutti::data {

// Keys [begin, end) share `depth` bytes, which lead to `state`.
struct PrefixTrie::Range {
  size_t begin, end, depth;
  uint32_t state;
};

PrefixTrie::PrefixTrie(std::vector<Key> keys) {
  std::stable_sort(keys.begin(), keys.end(),
                   [](const Key& a, const Key& b) { return a.first < b.first; });
  slots_.resize(257);
  slots_[0].parent = 0;
  slots_[0].base = 1;
  std::vector<Range> ranges = {{0, keys.size(), 0, 0}};
  std::vector<unsigned char> labels;
  std::vector<size_t> starts;
  while (!ranges.empty()) {
    const Range range = ranges.back();
    ranges.pop_back();
    size_t at = range.begin;
    for (; at < range.end && keys[at].first.size() == range.depth; ++at) {
      if (range.depth > 0) slots_[range.state].value = keys[at].second;
    }
    if (at == range.end) continue;
    labels.clear();
    starts.clear();
    for (; at < range.end; ++at) {
      const auto label = static_cast<unsigned char>(keys[at].first[range.depth]);
      if (!labels.empty() && labels.back() == label) continue;
      labels.push_back(label);
      starts.push_back(at);
    }
    starts.push_back(range.end);
    const uint32_t base = find_base(labels);
    slots_[range.state].base = base;
    for (const unsigned char label : labels) slots_[base + label].parent = range.state;
    for (size_t i = labels.size(); i-- > 0;) {
      ranges.push_back({starts[i], starts[i + 1], range.depth + 1, base + labels[i]});
    }
  }
}

uint32_t PrefixTrie::find_base(const std::vector<unsigned char>& labels) {
  const uint32_t lead = labels.front();
  uint32_t tried = 0;
  for (uint32_t slot = std::max(first_free_, lead + 1);; ++slot) {
    const uint32_t base = slot - lead;
    if (base + 256 >= slots_.size()) slots_.resize(std::max<size_t>(base + 512, slots_.size() * 2));
    if (slots_[slot].parent != kFree) continue;
    ++tried;
    const bool fits = std::all_of(labels.begin(), labels.end(), [&](unsigned char label) {
      return slots_[base + label].parent == kFree;
    });
    if (!fits) continue;
    // Where free slots are few and seldom fit, later searches start behind them.
    if (tried > 32 && slot > first_free_) first_free_ += (slot - first_free_) / 2;
    return base;
  }
}

}  // namespace tutti::data
