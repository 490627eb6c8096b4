#include "tutti/spec/program/inference_work.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/spec/model/packed_params.h"
#include "tutti/spec/model/params.h"

namespace tutti::spec {
namespace {

constexpr const char* kTableName = "embedding.token.weight";
constexpr const char* kPositionsName = "embedding.position.weight";
constexpr const char* kHeadName = "head.weight";

int64_t bytes_of(const std::vector<int64_t>& shape, std::optional<PackKind> kind, DType compute) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  if (!kind) return count * dtype_bytes(compute);
  const int64_t columns = shape.back();
  const int64_t matrices = shape.size() > 2 ? shape.front() : 1;
  return matrices * packed_layout(*kind, count / columns / matrices, columns).bytes;
}

// Keys that `tokens` queries after `past` see, over the positions; all of them together.
double keys_seen(int64_t past, int64_t tokens, int64_t window) {
  const auto sum_to = [](double n) { return n * (n + 1) / 2; };
  const auto last = static_cast<double>(past + tokens);
  const auto first = static_cast<double>(past);
  if (window == 0) return sum_to(last) - sum_to(first);
  const auto w = static_cast<double>(window);
  const auto seen_to = [&](double n) { return n <= w ? sum_to(n) : sum_to(w) + (n - w) * w; };
  return seen_to(last) - seen_to(first);
}

}  // namespace

InferenceProgram::InferenceProgram(const ModelConfig& model, const InferenceForm& form)
    : model_(model) {
  const ParamLayout layout = param_layout(param_table(model));
  for (const PlacedParam& placed : layout.params) {
    if (starts_with(placed.name, "prediction.")) continue;  // not executed
    add_param(placed.name, placed.param.shape, form);
  }
  cache_token_bytes_ = model.layers * cached_columns(model) * dtype_bytes(form.compute);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    ++layers_of_window_[window_of(model, layer, model.context)];
  }
  // Latent attention reads its compressed rows as they are cached (model/latent_decode.h).
  const int64_t columns = model.attention == Attention::latent
                              ? cached_columns(model) + model.latent.key_value_rank
                              : key_dim(model) + value_dim(model);
  column_flops_ = 2 * static_cast<double>(model.heads * columns);
}

void InferenceProgram::add_param(const std::string& name, const std::vector<int64_t>& shape,
                                 const InferenceForm& form) {
  const std::optional<PackKind> kind =
      form.pack ? pack_kind_of(model_, name, shape, *form.pack) : std::nullopt;
  const int64_t bytes = bytes_of(shape, kind, form.compute);
  double elements = 1;
  for (const int64_t dim : shape) elements *= static_cast<double>(dim);
  weight_bytes_ += bytes;
  const bool is_matrix = ends_with(name, ".weight") && shape.size() > 1;
  if (name == kPositionsName || name == kTableName) {
    table_row_bytes_ += static_cast<double>(bytes) / static_cast<double>(shape.front());
  }
  if (name == kPositionsName || (name == kTableName && !model_.tied_embeddings)) return;
  if (is_matrix && shape.size() > 2) {  // experts
    expert_bytes_ += static_cast<double>(bytes) / static_cast<double>(shape.front());
    expert_elements_ += elements / static_cast<double>(shape.front());
    return;
  }
  shared_bytes_ += static_cast<double>(bytes);
  if (!is_matrix) return;
  (name == kHeadName || name == kTableName ? head_elements_ : row_elements_) += elements;
}

InferenceWork InferenceProgram::pass(std::span<const TextRows> texts) const {
  InferenceWork out;
  double deciding = 0;
  double seen = 0;  // query and key, all layers together
  double read = 0;  // positions of the cache, likewise
  for (const TextRows& text : texts) {
    out.rows += text.tokens;
    if (text.decides) ++deciding;
    for (const auto& [window, layers] : layers_of_window_) {
      const int64_t last = text.past + text.tokens;
      const int64_t positions = window == 0 ? last : std::min(last, window + text.tokens - 1);
      seen += static_cast<double>(layers) * keys_seen(text.past, text.tokens, window);
      read += static_cast<double>(layers) * static_cast<double>(positions);
    }
  }
  const auto rows = static_cast<double>(out.rows);
  const auto layers = static_cast<double>(model_.layers);
  const auto experts = static_cast<double>(std::max<int64_t>(model_.moe.experts, 1));
  const auto chosen = static_cast<double>(model_.moe.top_k);
  out.product_flops =
      2 * (rows * (row_elements_ + chosen * expert_elements_) + deciding * head_elements_);
  out.attention_flops = seen * column_flops_;
  out.weight_bytes = shared_bytes_ + rows * table_row_bytes_ +
                     expert_bytes_ * experts * (1 - std::pow(1 - chosen / experts, rows));
  const double position_bytes = static_cast<double>(cache_token_bytes_) / layers;
  out.cache_bytes = (read + rows * layers) * position_bytes;
  return out;
}

}  // namespace tutti::spec
