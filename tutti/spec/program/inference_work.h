// What passes of inference over a model ask of a machine, and what is kept between them: rows of
// prompts and of answers side by side (model/paged_decode.h), counted without computing any.
//
//   products     2 FLOPs for each weight that a row passes; of the head, rows that decide a token
//   attention    2 FLOPs for each key and value column, head, query and key that it sees
//   weights      read once for a pass: all that products read, of the E experts of a layer those
//                that n rows with k of them are expected to choose, E (1 - (1 - k/E)^n)
//   cache        keys and values that the rows see, read once for each text; those of the rows,
//                written
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>

#include "tutti/base/dtype.h"
#include "tutti/base/packed_weights.h"
#include "tutti/spec/model/config.h"

namespace tutti::spec {

// How weights and cache are kept.
struct InferenceForm {
  DType compute = DType::bf16;        // also of the cache
  std::optional<PackKind> pack = {};  // of matrices (spec/model/packed_params.h)
};

// Rows of one text in a pass: tokens at the positions past, past + 1, ...
struct TextRows {
  int64_t tokens = 1;
  int64_t past = 0;
  bool decides = true;  // a token follows the last one
};

struct InferenceWork {
  double product_flops = 0;
  double attention_flops = 0;
  double weight_bytes = 0;
  double cache_bytes = 0;
  int64_t rows = 0;

  double flops() const { return product_flops + attention_flops; }
  double bytes() const { return weight_bytes + cache_bytes; }
};

class InferenceProgram {
 public:
  InferenceProgram(const ModelConfig& model, const InferenceForm& form);

  InferenceWork pass(std::span<const TextRows> texts) const;

  // The memory map: weights, and the cache of one position of a text.
  int64_t weight_bytes() const { return weight_bytes_; }
  int64_t cache_token_bytes() const { return cache_token_bytes_; }
  const ModelConfig& model() const { return model_; }

 private:
  void add_param(const std::string& name, const std::vector<int64_t>& shape,
                 const InferenceForm& form);

  ModelConfig model_;
  int64_t weight_bytes_ = 0;
  int64_t cache_token_bytes_ = 0;
  double row_elements_ = 0;     // of weights that every row passes
  double head_elements_ = 0;    // that rows pass which decide a token
  double shared_bytes_ = 0;     // of weights, without routed experts and tables
  double table_row_bytes_ = 0;  // looked up for a row
  double expert_bytes_ = 0;     // of one expert, all layers together
  double expert_elements_ = 0;  // likewise
  std::map<int64_t, int64_t> layers_of_window_;
  double column_flops_ = 0;  // of attention, per query and key in one layer
};

}  // namespace tutti::spec
