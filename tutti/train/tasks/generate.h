// Text from a trained run: KV cache, temperature, top-k, top-p, seed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/packed_weights.h"
#include "tutti/model/inference_weights.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

struct SamplingOptions {
  int64_t tokens = 200;      // at most; the model's context bounds prompt + tokens
  double temperature = 0.8;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: all
  double top_p = 1;          // keep the smallest set with at least this probability
  uint64_t seed = 1;
};

// Index drawn from logits [V] by the options; `draw` in [0, 1) decides. Ties go to the lower index.
int64_t sample_token(const std::vector<float>& logits, const SamplingOptions& options, double draw);

// The parameters of a model and its adapters, in the type that generation computes in, with
// matrices packed where that is asked for (model/inference_weights.h).
class GenerationWeights {
 public:
  // Zeros, to be set parameter by parameter.
  explicit GenerationWeights(const spec::Recipe& recipe, std::optional<PackKind> pack = {});
  // Of flat f32 parameters in the layout of the recipe's model and adapters.
  GenerationWeights(const spec::Recipe& recipe, const float* master,
                    std::optional<PackKind> pack = {});

  // Of weights that are there: in their type, whatever the recipe's precision.
  GenerationWeights(const spec::Recipe& recipe, model::InferenceWeights weights)
      : recipe_(recipe), weights_(std::move(weights)) {}

  void set(const spec::PlacedParam& placed, const float* values) {
    weights_.set(placed, 0, placed.param.count(), values);
  }
  // Whole rows of it, from element `first` on.
  void set(const spec::PlacedParam& placed, int64_t first, const std::vector<float>& values) {
    weights_.set(placed, first, static_cast<int64_t>(values.size()), values.data());
  }

  const spec::Recipe& recipe() const { return recipe_; }
  const spec::ParamLayout& layout() const { return weights_.layout(); }
  DType dtype() const { return weights_.compute(); }
  int64_t bytes() const { return weights_.bytes(); }
  model::Parameters parameters() const { return weights_.parameters(); }

 private:
  spec::Recipe recipe_;
  model::InferenceWeights weights_;
};

// Continues `prompt` (at least one token) with the parameters of a run: weights as flat f32
// parameters in the layout of the recipe's model and adapters. Calls on_token for each new one;
// stops after it returns false.
void generate(const spec::Recipe& recipe, const float* master, const std::vector<int32_t>& prompt,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token);
void generate(const GenerationWeights& weights, const std::vector<int32_t>& prompt,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token);

// Continues many prompts, `batch` of them side by side; a prompt takes the place of one that ended.
// Every prompt is continued as by generate() alone with the same options and the same draws of the
// seed; sums may round differently for another number of sequences side by side, so the tokens are
// the same up to that. on_token gets the prompt's index and each new token and returns false to end
// it; on_end when it has ended. Throws usage naming the index of a prompt that is empty or leaves
// no room.
void generate_batch(const spec::Recipe& recipe, const float* master,
                    const std::vector<std::vector<int32_t>>& prompts,
                    const SamplingOptions& options, int64_t batch,
                    const std::function<bool(size_t prompt, int32_t token)>& on_token,
                    const std::function<void(size_t prompt)>& on_end);
void generate_batch(const GenerationWeights& weights,
                    const std::vector<std::vector<int32_t>>& prompts,
                    const SamplingOptions& options, int64_t batch,
                    const std::function<bool(size_t prompt, int32_t token)>& on_token,
                    const std::function<void(size_t prompt)>& on_end);

}  // namespace tutti::train
