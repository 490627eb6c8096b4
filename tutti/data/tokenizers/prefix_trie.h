// A set of byte strings, each with a number, that finds all of them that a text starts with: a
// double array (Aoki 1989). A state is a slot; its child by byte b is slot base + b, if that slot's
// parent is the state. One look at memory per byte, 12 bytes per slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::data {

class PrefixTrie {
 public:
  using Key = std::pair<std::string_view, int32_t>;  // numbers are not negative

  PrefixTrie() : PrefixTrie(std::vector<Key>{}) {}
  // Empty keys are left out; of equal ones the last counts. The keys need not live on.
  explicit PrefixTrie(std::vector<Key> keys);

  // Calls found(bytes, number) for each key that `text` starts with, shortest first.
  template <typename Found>
  void prefixes(std::string_view text, const Found& found) const {
    uint32_t state = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      const uint32_t next = slots_[state].base + static_cast<unsigned char>(text[at]);
      if (slots_[next].parent != state) return;
      state = next;
      if (slots_[state].value >= 0) found(at + 1, slots_[state].value);
    }
  }

 private:
  struct Slot {
    uint32_t base = 0;  // base + 255 is a slot, too
    uint32_t parent = kFree;
    int32_t value = -1;
  };
  static constexpr uint32_t kFree = ~uint32_t{0};
  struct Range;

  uint32_t find_base(const std::vector<unsigned char>& labels);

  std::vector<Slot> slots_;
  uint32_t first_free_ = 1;
};

}  // namespace tutti::data
