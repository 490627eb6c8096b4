// The blocks of ring attention by the fused kernels: a causal call for the rank's own keys, or one
// in which all queries attend to all keys, with packed documents only those of the document that
// spans both ranks. Its bf16 results are merged into the f32 ones by their log-sum-exp; gradients,
// computed from the log-sum-exp and the output of all blocks, are added.
#include <algorithm>

#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/sdpa_calls.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

// The rows of queries and keys of a block that form pairs.
struct PairedRows {
  SeenBlock seen;
  RowSet queries, keys;
  SharedDocument shared;  // with documents

  PairedRows(const SeenBlock& block, int64_t rows) : seen(block) {
    queries.rows = keys.rows = rows;
    queries.begin = seen.first_query;
    queries.end = rows;
    keys.end = seen.key_count;
  }

  // The call for these rows, derived from that of all rows.
  SdpaShape shape(SdpaShape all, bool documents) const {
    all.call.queries = queries.end - queries.begin;
    all.call.keys = keys.end;
    all.causal = seen.own;
    all.lengths = documents;
    return all;
  }
  void take(Carver& carver, const SdpaShape& shape) {
    const int64_t batch = shape.call.batch;
    shared.queries = carver.take<int32_t>(batch);
    shared.keys = carver.take<int32_t>(batch);
    take_tables(carver, shape, batch, shared.query_tables);
    shared.key_tables = shared.query_tables;
    for (const Table table : {kKvTable, kDKvTable}) {
      shared.query_tables[table] = {};
    }
    for (const Table table : {kRowTable, kQTable, kOutTable, kDOutTable, kDQTable})
      shared.key_tables[table] = {};
    queries.counts = shared.queries;
    keys.counts = shared.keys;
    keys.from_end = true;
  }
  // The operands of the call, from operands that begin with the first row.
  SdpaOperands operands(const SdpaShape& shape, SdpaOperands at) const {
    if (shape.lengths) {
      at.queries = shared.queries;
      at.keys = shared.keys;
      set_tables(shared.query_tables, shared.key_tables, at);
      return at;
    }
    const auto move = [&](void*& data, const SdpaRows& rows) {
      if (data != nullptr) data = offset(data, queries.begin * rows.ld);
    };
    move(at.q, shape.q);
    move(at.out, shape.out);
    move(at.d_out, shape.d_out);
    move(at.d_q, shape.d_q);
    return at;
  }
};

}  // namespace

bool CudnnAttention::forward(const AttentionBlockForwardArgs& args) {
  PairedRows paired(seen_block(args.rows, args.blocks, args.query_block, args.key_block),
                    args.rows);
  AttentionShape request = attention_shape(args, args.rows, args.q, args.keys, args.values);
  request.sequence = std::min(paired.queries.end - paired.queries.begin, paired.keys.end);
  request.documents = request.documents && paired.seen.own;
  if (const std::string why = why_not_fused(request); !why.empty()) return refuse(request, why);
  Attend work = attend_of(args);
  const bool documents_inside = args.starts && paired.seen.own;
  Matrix part = matrix(nullptr, DType::bf16, args.q.rows, args.q.cols);
  const SdpaShape all = shape_of(work, args.rows, part);
  const SdpaShape shape = paired.shape(all, static_cast<bool>(args.starts));
  PackedDocuments documents;
  SdpaRun run(stream_, *plans_, piece_bytes_, "attention_block_forward");
  const std::string why = documents_inside ? documents.add(run, all) : run.add(shape);
  if (!why.empty()) return refuse(request, why);
  float* lse = nullptr;
  run.take_workspace([&](Carver& carver) {
    part.data = carver.take<bf16>(part.rows * part.cols);
    if (documents_inside) return documents.take(carver, all);
    lse = carver.take<float>(args.batch * args.heads * shape.call.queries);
    if (args.starts) paired.take(carver, shape);
  });
  auto* all_lse = args.lse.as<float>();
  if (documents_inside) {
    documents.find(run, all, work.starts);
    work.starts = documents.shortened;
    attend(stream_, run.op(), work);
    documents.forward(run, all, operands_of(work, part.data, nullptr), all_lse);
    paired.queries.shortened = documents.shortened;
    add_part(stream_, run.op(), paired.queries, args.batch, true, part, args.total);
    return true;
  }
  if (args.starts) {
    find_shared_document(stream_, run.op(), args.batch, args.rows, paired.seen.first_query,
                         paired.seen.key_count, work.starts, paired.shared);
  }
  run.enqueue(0, paired.operands(shape, operands_of(work, part.data, lse)));
  merge_part(stream_, run.op(), paired.queries, args.batch, args.heads, args.first, part, lse,
             args.total, all_lse);
  return true;
}

bool CudnnAttention::backward(const AttentionBlockBackwardArgs& args) {
  PairedRows paired(seen_block(args.rows, args.blocks, args.query_block, args.key_block),
                    args.rows);
  AttentionShape request =
      attention_shape(args, args.rows, args.q, args.keys, args.values, args.out, args.d_out);
  request.sequence = std::min(paired.queries.end - paired.queries.begin, paired.keys.end);
  request.documents = request.documents && paired.seen.own;
  if (const std::string why = why_not_fused(request); !why.empty()) return refuse(request, why);
  if (!args.out) return refuse(request, "no output over all blocks is given");
  AttendBackward work = attend_of(args);
  const bool documents_inside = args.starts && paired.seen.own;
  const int64_t kv_width = args.keys.cols;
  Matrix d_q = matrix(nullptr, DType::bf16, args.q.rows, args.q.cols);
  Matrix d_kv = matrix(nullptr, DType::bf16, args.q.rows, 2 * kv_width);
  AttendBackward parts = work;
  parts.d_q = d_q;
  parts.d_keys = parts.d_values = d_kv;
  const SdpaShape all = shape_of(parts, args.rows, args.out);
  const SdpaShape shape = paired.shape(all, static_cast<bool>(args.starts));
  PackedDocuments documents;
  SdpaRun run(stream_, *plans_, piece_bytes_, "attention_block_backward");
  const std::string why = documents_inside ? documents.add(run, all) : run.add(shape);
  if (!why.empty()) return refuse(request, why);
  float* lse = nullptr;
  run.take_workspace([&](Carver& carver) {
    d_q.data = carver.take<bf16>(d_q.rows * d_q.cols);
    d_kv.data = carver.take<bf16>(d_kv.rows * d_kv.cols);
    if (documents_inside) return documents.take(carver, all);
    lse = carver.take<float>(args.batch * args.heads * shape.call.queries);
    if (args.starts) paired.take(carver, shape);
  });
  const Matrix d_keys = d_kv.slice_cols(0, kv_width);
  const Matrix d_values = d_kv.slice_cols(kv_width, kv_width);
  parts.d_q = d_q;
  parts.d_keys = d_keys;
  parts.d_values = d_values;
  const auto* all_lse = args.lse.as<float>();
  const SdpaOperands at = operands_of(parts, args.out.data, lse);
  bool add_queries = args.add_queries;
  bool add_keys = args.add_keys;
  if (documents_inside) {
    documents.find(run, all, work.starts);
    work.starts = documents.shortened;
    attend_backward(stream_, run.op(), work);
    documents.backward(run, all, at, all_lse);
    paired.queries.shortened = paired.keys.shortened = documents.shortened;
    add_queries = add_keys = true;  // the plain kernels have written zeros
  } else {
    if (paired.seen.own) attend_delta(stream_, run.op(), work);
    if (args.starts) {
      find_shared_document(stream_, run.op(), args.batch, args.rows, paired.seen.first_query,
                           paired.seen.key_count, work.starts, paired.shared);
    }
    copy_lse(stream_, run.op(), paired.queries, args.batch, args.heads, all_lse, lse);
    run.enqueue(0, paired.operands(shape, at));
  }
  add_part(stream_, run.op(), paired.queries, args.batch, add_queries, d_q, args.d_q);
  add_part(stream_, run.op(), paired.keys, args.batch, add_keys, d_keys, args.d_keys);
  add_part(stream_, run.op(), paired.keys, args.batch, add_keys, d_values, args.d_values);
  return true;
}

}  // namespace tutti::engine
