// Small random models as an endpoint serves them, and requests that a test waits for.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/endpoint/engine.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::endpoint::testing {

inline constexpr int64_t kContext = 64;

// A trainer of the recipe with random parameters, for sequences of the whole context.
inline std::unique_ptr<train::Trainer> random_trainer(spec::Recipe recipe, float scale = 0.3F) {
  recipe.model.context = kContext;
  recipe.batch = {1, 1, kContext};
  auto trainer = std::make_unique<train::Trainer>(recipe);
  trainer->initialize();
  train::testing::randomize(*trainer, 4, scale);
  return trainer;
}

inline std::unique_ptr<LoadedModel> served(const train::Trainer& trainer,
                                           std::optional<PackKind> pack = {}) {
  const spec::Recipe& recipe = trainer.recipe();
  auto out = std::make_unique<LoadedModel>();
  out->name = recipe.model.name;
  out->config = recipe.model;
  out->weights = std::make_unique<model::InferenceWeights>(
      recipe.model, trainer.layout(),
      recipe.precision == spec::Precision::f32 ? DType::f32 : DType::bf16, pack);
  const std::vector<float> master = train::testing::flat_parameters(trainer);
  for (const spec::PlacedParam& placed : trainer.layout().params) {
    out->weights->set(placed, 0, placed.param.count(), master.data() + placed.element_offset);
  }
  return out;
}

// A request and what came of it.
class Answer {
 public:
  Engine::Sink sink() {
    return [this](const GenerationOutput& output) {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(ended_) << "an output behind the last";
      if (output.token >= 0) {
        tokens.push_back(output.token);
        logprobs.push_back(output.logprob);
        tops.push_back(output.top);
      }
      last = output;
      ended_ = output.finish != FinishReason::none;
      changed_.notify_all();
    };
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_; });
  }
  void wait_for_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || tokens.size() >= count; });
  }

  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> tops;
  GenerationOutput last;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
};

inline std::vector<int32_t> random_prompt(int64_t length, uint64_t seed, int64_t vocabulary = 101) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < length; ++i) {
    out.push_back(static_cast<int32_t>(random_u64(seed, static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(vocabulary)));
  }
  return out;
}

inline GenerationRequest request(std::vector<int32_t> prompt, int64_t max_tokens,
                                 double temperature = 0, uint64_t seed = 1) {
  GenerationRequest out;
  out.prompt = std::move(prompt);
  out.sampling.max_tokens = max_tokens;
  out.sampling.temperature = temperature;
  out.sampling.seed = seed;
  out.sampling.top_logprobs = 3;
  return out;
}

// All of them side by side, to their ends.
inline std::vector<std::unique_ptr<Answer>> run_all(Engine& engine,
                                                    const std::vector<GenerationRequest>& all) {
  std::vector<std::unique_ptr<Answer>> out;
  for (const GenerationRequest& one : all) {
    out.push_back(std::make_unique<Answer>());
    EXPECT_TRUE(engine.submit(one, out.back()->sink()).has_value());
  }
  for (const auto& answer : out) answer->wait();
  return out;
}

}  // namespace tutti::endpoint::testing
