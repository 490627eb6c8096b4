#include "tutti/engine/cuda/sdpa_calls.h"

#include <array>

#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {
namespace {

SdpaRows rows_in(const Matrix& x, int64_t rows) { return {x.ld, rows * x.ld}; }

template <typename Work>
SdpaShape common_shape(const Work& work, int64_t rows, const Matrix& out) {
  SdpaShape shape;
  shape.call = {work.batch, rows, rows, work.heads, work.kv_heads, work.head_dim};
  shape.scale = work.scale;
  shape.q = rows_in(work.q, rows);
  shape.kv = rows_in(work.keys, rows);
  shape.out = rows_in(out, rows);
  return shape;
}

template <typename Work>
SdpaOperands common_operands(const Work& work, void* out, void* lse) {
  SdpaOperands at;
  at.q = work.q.data;
  at.k = work.keys.data;
  at.v = work.values.data;
  at.out = out;
  at.lse = lse;
  return at;
}

// The operands of a piece of a call.
SdpaOperands part_of(const SdpaShape& s, const SdpaOperands& all, int64_t element,
                     int64_t kv_head) {
  const int64_t head = kv_head * (s.call.heads / s.call.kv_heads);
  SdpaOperands out = all;
  const auto move = [&](void*& data, const SdpaRows& rows, int64_t first_head) {
    if (data == nullptr) return;
    data = offset(data, first_head * s.call.head_dim + (s.lengths ? 0 : element * rows.batch));
  };
  move(out.q, s.q, head);
  move(out.k, s.kv, kv_head);
  move(out.v, s.kv, kv_head);
  move(out.out, s.out, head);
  move(out.d_out, s.d_out, head);
  move(out.d_q, s.d_q, head);
  move(out.d_k, s.d_kv, kv_head);
  move(out.d_v, s.d_kv, kv_head);
  if (out.lse != nullptr) {
    out.lse = offset(out.lse, (element * s.call.heads + head) * s.call.queries, DType::f32);
  }
  if (!s.lengths) return out;
  for (int32_t** table :
       {&out.queries, &out.keys, &out.q_offsets, &out.kv_offsets, &out.out_offsets,
        &out.d_out_offsets, &out.d_q_offsets, &out.d_kv_offsets}) {
    if (*table != nullptr) *table += element;
  }
  return out;
}

SdpaOperands slot_operands(SdpaOperands at, const DocumentSlots& slots, float* lse) {
  at.lse = lse;
  at.queries = at.keys = slots.lengths;
  set_tables(slots.tables, slots.tables, at);
  return at;
}

}  // namespace

void* offset(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * dtype_bytes(dtype);
}

SdpaShape shape_of(const Attend& work, int64_t rows, const Matrix& out) {
  return common_shape(work, rows, out);
}

SdpaShape shape_of(const AttendBackward& work, int64_t rows, const Matrix& out) {
  SdpaShape shape = common_shape(work, rows, out);
  shape.backward = true;
  shape.d_out = rows_in(work.d_out, rows);
  shape.d_q = rows_in(work.d_q, rows);
  shape.d_kv = rows_in(work.d_keys, rows);
  return shape;
}

SdpaOperands operands_of(const Attend& work, void* out, void* lse) {
  return common_operands(work, out, lse);
}

SdpaOperands operands_of(const AttendBackward& work, void* out, void* lse) {
  SdpaOperands at = common_operands(work, out, lse);
  at.d_out = work.d_out.data;
  at.d_q = work.d_q.data;
  at.d_k = work.d_keys.data;
  at.d_v = work.d_values.data;
  return at;
}

void take_tables(Carver& carver, const SdpaShape& shape, int64_t elements, RowTables& tables) {
  const std::array<int64_t, kRowTables> lds = {
      1, shape.q.ld, shape.kv.ld, shape.out.ld, shape.d_out.ld, shape.d_q.ld, shape.d_kv.ld};
  for (size_t i = 0; i < tables.size(); ++i) {
    if (lds[i] > 0) tables[i] = {lds[i], carver.take<int32_t>(elements + 1)};
  }
}

void set_tables(const RowTables& queries, const RowTables& keys, SdpaOperands& at) {
  at.q_offsets = queries[kQTable].offsets;
  at.kv_offsets = keys[kKvTable].offsets;
  at.out_offsets = queries[kOutTable].offsets;
  at.d_out_offsets = queries[kDOutTable].offsets;
  at.d_q_offsets = queries[kDQTable].offsets;
  at.d_kv_offsets = keys[kDKvTable].offsets;
}

std::string SdpaRun::add(const SdpaShape& shape) {
  Call& call = calls_.emplace_back(Call{shape, {}});
  const AttentionCall& all = shape.call;
  AttentionPiece size = {all.batch, all.kv_heads};
  if (shape.backward) {
    call.shape.fixed_order = stream_.deterministic();
    size = attention_piece(all, call.shape.fixed_order, piece_bytes_);
  }
  for (int64_t element = 0; element < all.batch; element += size.batch) {
    for (int64_t head = 0; head < all.kv_heads; head += size.kv_heads) {
      SdpaShape part = call.shape;
      part.call.batch = std::min(size.batch, all.batch - element);
      part.call.kv_heads = std::min(size.kv_heads, all.kv_heads - head);
      part.call.heads = part.call.kv_heads * (all.heads / all.kv_heads);
      const SdpaPlan& plan = plans_.find(part);
      if (plan.graph == nullptr) return plan.refusal;
      library_bytes_ = std::max(library_bytes_, plan.workspace_bytes);
      call.pieces.push_back({&plan, element, head});
    }
  }
  return "";
}

char* SdpaRun::allocate(int64_t bytes) {
  auto* workspace = static_cast<char*>(stream_.workspace(bytes + library_bytes_));
  library_ = workspace + bytes;
  return workspace;
}

void SdpaRun::enqueue(size_t index, const SdpaOperands& operands) {
  const Call& call = calls_.at(index);
  for (const Piece& piece : call.pieces) {
    plans_.run(*piece.plan, op_, part_of(call.shape, operands, piece.element, piece.kv_head),
               library_);
  }
}

std::string PackedDocuments::add(SdpaRun& run, const SdpaShape& whole) {
  for (const DocumentClass& size : document_classes(whole.call.queries)) {
    SdpaShape shape = whole;
    shape.call.batch = whole.call.batch * size.slots;
    shape.call.queries = shape.call.keys = size.most_tokens;
    shape.lengths = true;
    shape.lse = true;
    if (const std::string refusal = run.add(shape); !refusal.empty()) return refusal;
    classes.push_back({size, nullptr, {}});
  }
  return "";
}

void PackedDocuments::take(Carver& carver, const SdpaShape& whole) {
  int64_t packed = 0;
  shortened = carver.take<int32_t>(whole.call.batch * whole.call.queries);
  for (DocumentSlots& one : classes) {
    const int64_t elements = whole.call.batch * one.size.slots;
    one.lengths = carver.take<int32_t>(elements);
    take_tables(carver, whole, elements, one.tables);
    packed = std::max(packed, elements * whole.call.heads * one.size.most_tokens);
  }
  lse = carver.take<float>(packed);
}

void PackedDocuments::find(SdpaRun& run, const SdpaShape& whole, const int32_t* starts) const {
  find_documents(run.stream(), run.op(), whole.call.batch, whole.call.queries, starts, shortened,
                 classes);
}

void PackedDocuments::forward(SdpaRun& run, const SdpaShape& whole, const SdpaOperands& at,
                              float* all_lse) const {
  for (size_t i = 0; i < classes.size(); ++i) {
    run.enqueue(i, slot_operands(at, classes[i], lse));
    if (all_lse == nullptr) continue;
    unpack_lse(run.stream(), run.op(), classes[i], whole.call.batch, whole.call.queries,
               whole.call.heads, lse, all_lse);
  }
}

void PackedDocuments::backward(SdpaRun& run, const SdpaShape& whole, const SdpaOperands& at,
                               const float* all_lse) const {
  for (size_t i = 0; i < classes.size(); ++i) {
    pack_lse(run.stream(), run.op(), classes[i], whole.call.batch, whole.call.queries,
             whole.call.heads, all_lse, lse);
    run.enqueue(i, slot_operands(at, classes[i], lse));
  }
}

}  // namespace tutti::engine
