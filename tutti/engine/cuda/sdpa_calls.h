// Conversion of attention operations to calls of the fused kernels (sdpa.h): shapes and operands,
// the pieces of backward calls, and packed documents as slots of equal length. For
// cudnn_attention.cpp and cudnn_attention_block.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/engine/attend.h"
#include "tutti/engine/carver.h"
#include "tutti/engine/cuda/attention_choice.h"
#include "tutti/engine/cuda/attention_rows.h"
#include "tutti/engine/cuda/sdpa.h"

namespace tutti::engine {

// Whether kernels can load 16 bytes at a time.
template <typename... Matrices>
bool all_aligned(const Matrices&... matrices) {
  constexpr int64_t kBytes = 16;
  const auto aligned = [](const Matrix& x) {
    return reinterpret_cast<uintptr_t>(x.data) % kBytes == 0 &&
           x.ld * dtype_bytes(x.dtype) % kBytes == 0;
  };
  return (aligned(matrices) && ...);
}

template <typename Args, typename... Matrices>
AttentionShape attention_shape(const Args& args, int64_t rows, const Matrix& q,
                               const Matrices&... others) {
  AttentionShape shape;
  shape.batch = args.batch;
  shape.sequence = rows;
  shape.heads = args.heads;
  shape.kv_heads = args.kv_heads;
  shape.head_dim = args.head_dim;
  shape.dtype = q.dtype;
  shape.documents = static_cast<bool>(args.starts);
  shape.aligned = all_aligned(q, others...);
  if (args.starts) shape.elements = std::max({q.rows * q.ld, others.rows * others.ld...});
  return shape;
}

// One causal call with all heads and `rows` rows per batch element of every operand. `out` replaces
// the output of the computation.
SdpaShape shape_of(const Attend& work, int64_t rows, const Matrix& out);
SdpaShape shape_of(const AttendBackward& work, int64_t rows, const Matrix& out);
SdpaOperands operands_of(const Attend& work, void* out, void* lse);
SdpaOperands operands_of(const AttendBackward& work, void* out, void* lse);

void* offset(void* data, int64_t elements, DType dtype = DType::bf16);

// The tables of packed documents: their rows (ld 1), and those of each operand.
enum Table : size_t { kRowTable, kQTable, kKvTable, kOutTable, kDOutTable, kDQTable, kDKvTable };
void take_tables(Carver& carver, const SdpaShape& shape, int64_t elements, RowTables& tables);
void set_tables(const RowTables& queries, const RowTables& keys, SdpaOperands& at);

// One operation: its calls, planned before anything is enqueued, and the stream's workspace, which
// holds intermediate results followed by the library workspace that the calls share.
class SdpaRun {
 public:
  // piece_bytes: limit of a backward call, except for the smallest piece.
  SdpaRun(CudaStream& stream, SdpaPlans& plans, int64_t piece_bytes, const char* op)
      : stream_(stream), plans_(plans), piece_bytes_(piece_bytes), op_(op) {}

  // Returns the library's refusal; empty if it supports every piece of the call.
  std::string add(const SdpaShape& shape);

  // carve(carver) takes the intermediate results. It is called twice: to measure, then to allocate.
  template <typename Carve>
  void take_workspace(const Carve& carve) {
    Carver counting(nullptr, kAlignment);
    carve(counting);
    char* workspace = allocate(counting.bytes());
    Carver carver(workspace, kAlignment);
    carve(carver);
  }

  // Enqueues the index-th added call.
  void enqueue(size_t index, const SdpaOperands& operands);

  CudaStream& stream() { return stream_; }
  const char* op() const { return op_; }

 private:
  static constexpr int64_t kAlignment = 256;
  struct Piece {
    const SdpaPlan* plan;
    int64_t element, kv_head;  // first batch element and key/value head
  };
  struct Call {
    SdpaShape shape;
    std::vector<Piece> pieces;
  };
  char* allocate(int64_t bytes);

  CudaStream& stream_;
  SdpaPlans& plans_;
  int64_t piece_bytes_;
  const char* op_;
  std::vector<Call> calls_;
  int64_t library_bytes_ = 0;
  void* library_ = nullptr;
};

// Packed documents: one call per length class.
struct PackedDocuments {
  std::vector<DocumentSlots> classes;
  int32_t* shortened = nullptr;  // starts for the plain kernels
  float* lse = nullptr;          // packed, for the current class

  // Adds the calls, derived from `whole`, one of complete sequences. Returns the library's refusal
  // or an empty string.
  std::string add(SdpaRun& run, const SdpaShape& whole);
  void take(Carver& carver, const SdpaShape& whole);
  void find(SdpaRun& run, const SdpaShape& whole, const int32_t* starts) const;
  // Process the documents with a slot. `at` holds operands of complete sequences; all_lse [batch,
  // heads, tokens] may be null.
  void forward(SdpaRun& run, const SdpaShape& whole, const SdpaOperands& at, float* all_lse) const;
  void backward(SdpaRun& run, const SdpaShape& whole, const SdpaOperands& at,
                const float* all_lse) const;
};

}  // namespace tutti::engine
