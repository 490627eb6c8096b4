// Workspace of fused attention kernels, and the chunking that keeps it small. The memory map counts
// it (spec/memory/memory.h), the CUDA backend asks for it (engine/cuda/cudnn_attention.cpp), so
// both read it here. Sizes are those of one rank.
//
// cuDNN's backward in a fixed order stores dS whole, in 16 bits, with both sides rounded up to
// multiples of 64 (its frontend, scaled_dot_product_flash_attention.h: a deterministic algorithm
// takes the dP workspace); in free order it keeps an f32 sum of dQ instead. Both keep
// rowsum(d_out * out) in f32, and with grouped heads dK and dV of every query head.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

// What the kernels of one call may take, unless the least piece takes more.
inline constexpr int64_t kAttentionPieceBytes = int64_t{512} << 20;

struct AttentionCall {
  int64_t batch = 0, queries = 0, keys = 0;  // tokens of each batch element
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

// Of one backward call.
int64_t attention_backward_bytes(const AttentionCall& call, bool fixed_order);

// How a backward call is divided: all heads of `batch` elements, or kv_heads of one element with
// their query heads. The largest pieces within `limit_bytes`; the least is one key/value head of
// one element, whatever it takes. Elements and heads are independent, so pieces change no bit.
struct AttentionPiece {
  int64_t batch = 1, kv_heads = 1;
};
AttentionPiece attention_piece(const AttentionCall& call, bool fixed_order,
                               int64_t limit_bytes = kAttentionPieceBytes);

// Documents that are packed into sequences, by length: a call takes those of one class, padded to
// most_tokens. Class c has lengths in (64 * 2^c, 64 * 2^(c+1)], the last one up to the sequence. A
// sequence of T tokens cannot have two of them begin in one window of 64 * 2^c tokens, so a class
// has a slot for each window. Documents of at most 64 tokens have no class.
struct DocumentClass {
  int64_t most_tokens = 0;    // of a document
  int64_t window_tokens = 0;  // least length - 1
  int64_t slots = 0;          // of a sequence
};
inline constexpr int64_t kShortDocument = 64;
std::vector<DocumentClass> document_classes(int64_t sequence);

// What attention on a rank asks of its stream, both ways: the kernels' own, and what lies between
// them and the operations (engine/attention_ops.h).
struct AttentionUse {
  int64_t batch = 0, tokens = 0;  // of a micro-batch, of a sequence on this rank
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool documents = false;  // packed
  bool ring = false;       // sequences are on several ranks
  bool fixed_order = true;
};
int64_t attention_workspace_bytes(const AttentionUse& use);

}  // namespace tutti
