#include "tutti/data/tokenizers/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/mix.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

constexpr size_t kLongWord = 48;  // symbols from which on the heap is faster

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeModel::BpeModel(const std::vector<std::pair<std::string, int32_t>>& tokens,
                   const std::vector<std::pair<std::string, std::string>>& merges,
                   BpeOptions options, const std::string& origin)
    : options_(options) {
  ids_.reserve(tokens.size());
  for (const auto& [text, id] : tokens) ids_.emplace(text, id);
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    byte_ids_[b] = find(options_.bytes ? byte : fmt::format("<0x{:02X}>", b));
  }
  slots_.resize(std::bit_ceil(2 * merges.size() + 2));
  slot_mask_ = slots_.size() - 1;
  uint32_t rank = 0;
  for (const auto& [left, right] : merges) {
    const int32_t ids[3] = {find(left), find(right), find(left + right)};
    for (int i = 0; i < 3; ++i) {
      if (ids[i] >= 0) continue;
      fail(ErrorKind::corrupt, "'{}': merge {} is of \"{}\" and \"{}\", but \"{}\" is not a token",
           origin, rank, printable(left), printable(right),
           printable(i == 0   ? left
                     : i == 1 ? right
                              : left + right));
    }
    insert_pair(ids[0], ids[1], {rank++, ids[2]});
  }
}

int32_t BpeModel::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

void BpeModel::insert_pair(int32_t left, int32_t right, BpeScratch::Pair pair) {
  const uint64_t key = pair_key(left, right);
  uint64_t slot = mix(key, 0) & slot_mask_;
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & slot_mask_;
  slots_[slot] = {key, pair};  // the last of equals counts
}

BpeScratch::Pair BpeModel::pair(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (uint64_t slot = mix(key, 0) & slot_mask_;; slot = (slot + 1) & slot_mask_) {
    if (slots_[slot].key == key) return slots_[slot].pair;
    if (slots_[slot].key == kEmpty) return {kNoRank, -1};
  }
}

void BpeModel::encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (const int32_t id = options_.whole_words ? find(word) : -1; id >= 0) {
    out.push_back(id);
    return;
  }
  split(word, scratch);
  if (scratch.symbols_.size() < kLongWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  for (const BpeScratch::Symbol& symbol : scratch.symbols_) out.push_back(symbol.id);
}

void BpeModel::split(std::string_view word, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  symbols.clear();
  if (options_.bytes) {
    for (const char byte : word) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
      if (id >= 0) {
        symbols.push_back({id});
      } else {
        add_unknown({&byte, 1}, scratch);
      }
    }
    return;
  }
  for (size_t at = 0; at < word.size();) {
    const Utf8Char c = decode_utf8(word, at);
    const std::string_view symbol = word.substr(at, c.bytes);
    at += c.bytes;
    const int32_t id = find(symbol);
    if (id >= 0) {
      symbols.push_back({id});
      continue;
    }
    const bool falls_back =
        options_.byte_fallback && std::all_of(symbol.begin(), symbol.end(), [&](char byte) {
          return byte_ids_[static_cast<unsigned char>(byte)] >= 0;
        });
    if (!falls_back) {
      add_unknown(symbol, scratch);
      continue;
    }
    for (const char byte : symbol) {
      symbols.push_back({byte_ids_[static_cast<unsigned char>(byte)]});
    }
  }
}

void BpeModel::add_unknown(std::string_view symbol, BpeScratch& scratch) const {
  if (options_.unknown < 0) {
    fail(ErrorKind::usage, "the tokenizer has no token for \"{}\" and none for what is unknown",
         printable(symbol));
  }
  auto& symbols = scratch.symbols_;
  // Only an unknown symbol has the unknown's id before merging, or its own text spelled out.
  if (options_.fuse_unknown && !symbols.empty() && symbols.back().id == options_.unknown) return;
  symbols.push_back({options_.unknown});
}

void BpeModel::merge_short(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& pairs = scratch.pairs_;
  if (symbols.size() < 2) return;
  pairs.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) {
    pairs.push_back(pair(symbols[i].id, symbols[i + 1].id));
  }
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i < pairs.size(); ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs.empty() || pairs[best].rank == kNoRank) return;
    symbols[best].id = pairs[best].id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    pairs.erase(pairs.begin() + static_cast<std::ptrdiff_t>(best));
    if (best < pairs.size()) pairs[best] = pair(symbols[best].id, symbols[best + 1].id);
    if (best > 0) pairs[best - 1] = pair(symbols[best - 1].id, symbols[best].id);
  }
}

void BpeModel::merge_long(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  const auto offer = [&](int32_t position) {
    const int32_t next = symbols[static_cast<size_t>(position)].next;
    if (next < 0) return;
    const BpeScratch::Pair found =
        pair(symbols[static_cast<size_t>(position)].id, symbols[static_cast<size_t>(next)].id);
    if (found.rank == kNoRank) return;
    heap.push_back({found.rank, position, found.id});
    std::push_heap(heap.begin(), heap.end());
  };
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)].previous = i - 1;
    symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(top.position)];
    if (left.id < 0 || left.next < 0) continue;  // merged away, or now the last
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    const BpeScratch::Pair now = pair(left.id, right.id);
    if (now.rank != top.rank) continue;  // another pair by now
    left.id = now.id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = top.position;
    if (left.previous >= 0) offer(left.previous);
    offer(top.position);
  }
  std::erase_if(symbols, [](const BpeScratch::Symbol& symbol) { return symbol.id < 0; });
}

}  // namespace tutti::data
