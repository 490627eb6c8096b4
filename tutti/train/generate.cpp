#include "tutti/train/generate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/model/decode.h"
#include "tutti/spec/params.h"

namespace tutti::train {

int64_t sample_token(const std::vector<float>& logits, const SamplingOptions& options,
                     double draw) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto logit = [&](int64_t i) { return logits[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> weights;
  double total = 0;
  for (const int64_t i : order) {
    const double shifted = static_cast<double>(logit(i)) - static_cast<double>(logit(order[0]));
    weights.push_back(std::exp(shifted / options.temperature));
    total += weights.back();
  }
  // The nucleus: as few tokens as reach top_p, the one that crosses it included.
  double kept = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options.top_p * total)) {
    kept += weights[count++];
  }
  double rest = draw * kept;
  for (size_t i = 0; i < count; ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order[count - 1];
}

void generate(const spec::Recipe& recipe, const float* master, const std::vector<int32_t>& prompt,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token) {
  const int64_t wanted = static_cast<int64_t>(prompt.size()) + options.tokens;
  const int64_t capacity = std::min(wanted, recipe.model.context);
  if (static_cast<int64_t>(prompt.size()) >= recipe.model.context) {
    fail(ErrorKind::usage,
         "prompt: {} tokens leave no room in the model's context of {}; shorten it", prompt.size(),
         recipe.model.context);
  }
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(recipe.model));
  const DType compute = recipe.precision == spec::Precision::f32 ? DType::f32 : DType::bf16;
  const auto stream = engine::make_cpu_stream(recipe.threads);
  const engine::Arena weights("weights", layout.elements * dtype_bytes(compute));
  if (compute == DType::f32) {
    std::memcpy(weights.data(), master, static_cast<size_t>(weights.bytes()));
  } else {
    stream->ops().convert(
        *stream, {.x = engine::vector(const_cast<float*>(master), DType::f32, layout.elements),
                  .out = engine::vector(weights.data(), compute, layout.elements)});
  }
  model::Decoder decoder(recipe.model, layout, weights.data(), compute, capacity);
  std::vector<float> logits = decoder.feed(*stream, prompt);
  const uint64_t key = stream_key(options.seed, "generate");
  for (int64_t i = 0; i < options.tokens; ++i) {
    const int64_t token =
        sample_token(logits, options, random_uniform(key, static_cast<uint64_t>(i)));
    if (!on_token(static_cast<int32_t>(token)) || decoder.position() == capacity) return;
    if (i + 1 < options.tokens) logits = decoder.feed(*stream, {static_cast<int32_t>(token)});
  }
}

}  // namespace tutti::train
