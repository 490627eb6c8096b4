#include "tutti/train/tasks/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/model/decode.h"

namespace tutti::train {

int64_t sample_token(const std::vector<float>& logits, const SamplingOptions& options,
                     double draw) {
  if (options.temperature == 0) {
    return std::max_element(logits.begin(), logits.end()) - logits.begin();
  }
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto logit = [&](int64_t i) { return logits[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logit(a) > logit(b); });
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

namespace {

// The longest that a text of these prompts can become. Throws usage for one that does not fit.
int64_t longest_text(const std::vector<std::vector<int32_t>>& prompts, int64_t context,
                     const SamplingOptions& options) {
  int64_t capacity = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto length = static_cast<int64_t>(prompts[i].size());
    if (length == 0 || length >= context) {
      fail(ErrorKind::usage, "prompt{}: {} tokens exceed the model's context of {}; {} it",
           prompts.size() > 1 ? fmt::format(" {}", i + 1) : "", length, context,
           length == 0 ? "lengthen" : "shorten");
    }
    capacity = std::max(capacity, std::min(length + options.tokens, context));
  }
  return capacity;
}

DType generation_type(const spec::Recipe& recipe) {
  return recipe.precision == spec::Precision::f32 ? DType::f32 : DType::bf16;
}

}  // namespace

GenerationWeights::GenerationWeights(const spec::Recipe& recipe, std::optional<PackKind> pack)
    : recipe_(recipe),
      weights_(recipe.model, spec::param_layout(spec::param_table(recipe.model, recipe.lora)),
               generation_type(recipe), pack) {}

GenerationWeights::GenerationWeights(const spec::Recipe& recipe, const float* master,
                                     std::optional<PackKind> pack)
    : GenerationWeights(recipe, pack) {
  for (const spec::PlacedParam& placed : layout().params) {
    set(placed, master + placed.element_offset);
  }
}

void generate_batch(const spec::Recipe& recipe, const float* master,
                    const std::vector<std::vector<int32_t>>& prompts,
                    const SamplingOptions& options, int64_t batch,
                    const std::function<bool(size_t, int32_t)>& on_token,
                    const std::function<void(size_t)>& on_end) {
  if (longest_text(prompts, recipe.model.context, options) == 0) return;  // `master` is not read
  generate_batch(GenerationWeights(recipe, master), prompts, options, batch, on_token, on_end);
}

void generate_batch(const GenerationWeights& weights,
                    const std::vector<std::vector<int32_t>>& prompts,
                    const SamplingOptions& options, int64_t batch,
                    const std::function<bool(size_t, int32_t)>& on_token,
                    const std::function<void(size_t)>& on_end) {
  const spec::Recipe& recipe = weights.recipe();
  const int64_t capacity = longest_text(prompts, recipe.model.context, options);
  const int64_t sequences = std::min(batch, static_cast<int64_t>(prompts.size()));
  if (sequences == 0) return;
  const auto stream = engine::make_cpu_stream(recipe.threads);
  model::Decoder decoder(recipe.model, weights.parameters(), weights.dtype(), capacity, sequences);
  const uint64_t key = stream_key(options.seed, "generate");

  // A text in a sequence of the decoder; it ends before `limit` tokens would be exceeded.
  struct Text {
    size_t prompt = 0;
    int64_t sequence = 0;
    int64_t limit = 0;
    int64_t made = 0;
    int32_t last = 0;
  };
  // Draws a token; false when the text has ended.
  const auto draw = [&](Text& text, const std::vector<float>& logits) {
    const int64_t token =
        sample_token(logits, options, random_uniform(key, static_cast<uint64_t>(text.made)));
    ++text.made;
    text.last = static_cast<int32_t>(token);
    if (on_token(text.prompt, text.last) && decoder.position(text.sequence) < text.limit &&
        text.made < options.tokens) {
      return true;
    }
    on_end(text.prompt);
    return false;
  };
  std::vector<Text> running;
  std::vector<int64_t> free;
  for (int64_t i = sequences; i-- > 0;) free.push_back(i);
  size_t next_prompt = 0;
  while (next_prompt < prompts.size() || !running.empty()) {
    while (!free.empty() && next_prompt < prompts.size()) {
      const std::vector<int32_t>& prompt = prompts[next_prompt];
      Text text = {
          next_prompt++, free.back(),
          std::min(static_cast<int64_t>(prompt.size()) + options.tokens, recipe.model.context)};
      decoder.clear(text.sequence);
      if (draw(text, decoder.feed(*stream, prompt, text.sequence))) {
        free.pop_back();
        running.push_back(text);
      }
    }
    if (running.empty()) continue;
    std::vector<model::Decoder::Next> next;
    next.reserve(running.size());
    for (const Text& text : running) next.push_back({text.sequence, text.last});
    const std::vector<std::vector<float>> logits = decoder.step(*stream, next);
    std::vector<Text> still;
    for (size_t i = 0; i < running.size(); ++i) {
      if (draw(running[i], logits[i])) {
        still.push_back(running[i]);
      } else {
        free.push_back(running[i].sequence);
      }
    }
    running = std::move(still);
  }
}

void generate(const spec::Recipe& recipe, const float* master, const std::vector<int32_t>& prompt,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token) {
  generate_batch(
      recipe, master, {prompt}, options, 1, [&](size_t, int32_t token) { return on_token(token); },
      [](size_t) {});
}

void generate(const GenerationWeights& weights, const std::vector<int32_t>& prompt,
              const SamplingOptions& options, const std::function<bool(int32_t)>& on_token) {
  generate_batch(
      weights, {prompt}, options, 1, [&](size_t, int32_t token) { return on_token(token); },
      [](size_t) {});
}

}  // namespace tutti::train
