#include "tutti/base/attention_workspace.h"

#include <algorithm>
#include <utility>

#include "tutti/base/round_up.h"

namespace tutti {
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Every array in the stream's workspace begins at such a multiple.
constexpr int64_t kAlignment = 256;
int64_t array_bytes(int64_t elements, int64_t element_bytes) {
  return round_up(elements * element_bytes, kAlignment);
}

// Of one backward call as it is divided.
int64_t divided_bytes(const AttentionCall& call, bool fixed_order) {
  const AttentionPiece piece = attention_piece(call, fixed_order);
  AttentionCall part = call;
  part.batch = piece.batch;
  part.heads = piece.kv_heads * (call.heads / call.kv_heads);
  part.kv_heads = piece.kv_heads;
  return attention_backward_bytes(part, fixed_order);
}

}  // namespace

int64_t attention_backward_bytes(const AttentionCall& call, bool fixed_order) {
  constexpr int64_t kTile = 64, kHalf = 2, kFloat = 4;
  const int64_t query_rows = call.batch * call.heads * call.queries;
  const int64_t key_rows = call.batch * call.heads * call.keys;
  const int64_t order = fixed_order ? call.batch * call.heads * round_up(call.queries, kTile) *
                                          round_up(call.keys, kTile) * kHalf
                                    : query_rows * call.head_dim * kFloat;
  const int64_t whole_heads =
      call.heads == call.kv_heads ? 0 : 2 * key_rows * call.head_dim * kFloat;
  return order + query_rows * kFloat + whole_heads;
}

AttentionPiece attention_piece(const AttentionCall& call, bool fixed_order, int64_t limit_bytes) {
  AttentionCall one = call;
  one.batch = 1;
  const int64_t element = attention_backward_bytes(one, fixed_order);
  if (element <= limit_bytes) {
    const int64_t most = element == 0 ? call.batch : limit_bytes / element;
    // As many calls as the largest pieces need, of equal sizes.
    const int64_t calls = divide_up(std::max<int64_t>(1, call.batch), most);
    return {divide_up(call.batch, calls), call.kv_heads};
  }
  one.heads = call.heads / call.kv_heads;
  one.kv_heads = 1;
  const int64_t most =
      std::max<int64_t>(1, limit_bytes / attention_backward_bytes(one, fixed_order));
  return {1, divide_up(call.kv_heads, divide_up(call.kv_heads, most))};
}

std::vector<DocumentClass> document_classes(int64_t sequence) {
  std::vector<DocumentClass> classes;
  for (int64_t window = kShortDocument; window < sequence; window *= 2) {
    classes.push_back({std::min(2 * window, sequence), window, divide_up(sequence, window)});
  }
  return classes;
}

int64_t attention_workspace_bytes(const AttentionUse& use) {
  constexpr int64_t kHalf = 2, kFloat = 4, kIndex = 4;
  constexpr int64_t kTables = 7;  // where rows of each operand begin, and which they are
  const int64_t rows = use.batch * use.tokens;
  const int64_t width = use.heads * use.head_dim;
  const int64_t kv_width = use.kv_heads * use.head_dim;
  AttentionCall call = {use.batch, use.tokens, use.tokens, use.heads, use.kv_heads, use.head_dim};
  int64_t kernels = 0;
  int64_t between = 0;
  if (rows * width == 0) return 0;
  if (use.ring || !use.documents) kernels = divided_bytes(call, use.fixed_order);
  if (use.ring) {
    // Of the ranks before it the first half of the keys, of those behind it to half of the queries.
    AttentionCall half = call;
    half.keys = use.tokens / 2;
    kernels = std::max(kernels, divided_bytes(half, use.fixed_order));
    std::swap(half.queries, half.keys);
    kernels = std::max(kernels, divided_bytes(half, use.fixed_order));
    // The gradients of queries, keys and values of a block, and the log-sum-exp of its queries.
    between = array_bytes(rows * width, kHalf) + array_bytes(2 * rows * kv_width, kHalf) +
              array_bytes(rows * use.heads, kFloat);
  }
  if (use.documents) {
    int64_t statistics = 0;
    int64_t tables = array_bytes(rows, kIndex);
    for (const DocumentClass& one : document_classes(use.tokens)) {
      call.batch = use.batch * one.slots;
      call.queries = call.keys = one.most_tokens;
      kernels = std::max(kernels, divided_bytes(call, use.fixed_order));
      statistics =
          std::max(statistics, array_bytes(call.batch * use.heads * one.most_tokens, kFloat));
      tables += array_bytes(call.batch, kIndex) + kTables * array_bytes(call.batch + 1, kIndex);
    }
    // Blocks of a ring see at most one document of each sequence.
    tables += 2 * array_bytes(use.batch, kIndex) + kTables * array_bytes(use.batch + 1, kIndex);
    between += statistics + tables;
  }
  return kernels + between;
}

}  // namespace tutti
