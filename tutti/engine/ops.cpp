#include "tutti/engine/ops.h"

#include "tutti/engine/stream.h"

namespace tutti::engine {

void check_complete(const OpTable& table) {
  size_t entries = 0;
  const auto check = [&](auto function, const char* name) {
    ++entries;
    TUTTI_CHECK(function != nullptr, "backend {} lacks operation {}", table.backend, name);
  };
  check(table.gemm, "gemm");
  check(table.norm_forward, "norm_forward");
  check(table.norm_backward_input, "norm_backward_input");
  check(table.norm_backward_weight, "norm_backward_weight");
  check(table.column_sum, "column_sum");
  check(table.activation_forward, "activation_forward");
  check(table.activation_backward, "activation_backward");
  check(table.rope, "rope");
  check(table.attention_forward, "attention_forward");
  check(table.attention_backward, "attention_backward");
  check(table.attention_block_forward, "attention_block_forward");
  check(table.attention_block_backward, "attention_block_backward");
  check(table.attention_decode, "attention_decode");
  check(table.embedding_forward, "embedding_forward");
  check(table.embedding_backward, "embedding_backward");
  check(table.cross_entropy, "cross_entropy");
  check(table.distill_cross_entropy, "distill_cross_entropy");
  check(table.dropout, "dropout");
  check(table.adamw, "adamw");
  check(table.squared_norm, "squared_norm");
  check(table.sum, "sum");
  check(table.add_rows, "add_rows");
  check(table.prepare_update, "prepare_update");
  check(table.find_nonfinite, "find_nonfinite");
  check(table.convert, "convert");
  check(table.copy, "copy");
  check(table.route_forward, "route_forward");
  check(table.route_backward, "route_backward");
  check(table.assign_rows, "assign_rows");
  check(table.merge_counts, "merge_counts");
  check(table.permute, "permute");
  check(table.unpermute, "unpermute");
  check(table.grouped_gemm, "grouped_gemm");
  check(table.grouped_gemm_weight, "grouped_gemm_weight");
  check(table.update_selection_bias, "update_selection_bias");
  check(table.add_positions, "add_positions");
  check(table.cross_entropy_shard, "cross_entropy_shard");
  check(table.cross_entropy_merge, "cross_entropy_merge");
  check(table.quantize, "quantize");
  check(table.narrow_gemm, "narrow_gemm");
  entries += 3;  // those of norm_ops.h, which a backend may lack
  TUTTI_CHECK(sizeof(OpTable) == (entries + 1) * sizeof(void*),
              "{} entries of the table are checked, a new one is not", entries);
}

}  // namespace tutti::engine
