// How fast a model is served on this machine: prompts, and answers of one stream and of several
// side by side, through the engine as requests go.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/model.h"
#include "tutti/spec/model/config.h"

namespace tutti::endpoint {

// A model of this configuration with random weights: as fast as one with learned ones.
std::unique_ptr<LoadedModel> random_model(const spec::ModelConfig& config, WeightType weights,
                                          int threads);

struct InferenceBenchOptions {
  std::vector<int64_t> streams = {1, 16};
  int64_t prompt_tokens = 512;  // of the measurement of prompts
  int64_t answer_tokens = 48;   // of each stream
  int64_t start_tokens = 32;    // that an answer follows
  int threads = 0;
};

struct PromptSpeed {
  int64_t tokens = 0;
  double seconds = 0;  // to the first token of the answer
  double flops = 0;    // of products with weights: 2 for each that a token passes
};

struct AnswerSpeed {
  int64_t streams = 0;
  int64_t steps = 0;
  double seconds = 0;  // of the steps
  double tokens_per_second = 0;
  double bytes_per_step = 0;  // weights that products read, and the cache
};

struct InferenceSpeed {
  PromptSpeed prompt;
  std::vector<AnswerSpeed> answers;
};

// Throws usage where the model's context is too short for the options.
InferenceSpeed bench_inference(const LoadedModel& model, const InferenceBenchOptions& options);

}  // namespace tutti::endpoint
