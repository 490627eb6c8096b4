// Text samples of a run's model after each checkpoint (checkpoint.sample_tokens,
// checkpoint.sample_prompt).
//
// It reads the saved checkpoint and computes on the CPU: any mesh and any device can be sampled,
// and the state of training is neither read nor touched. The sampling is that of `tutti generate`
// with its defaults, so that texts of one run differ by what was learned between them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/events.h"

namespace tutti::train {

class CheckpointSampler {
 public:
  // Throws usage naming the key when the run has no tokenizer, or the prompt is none to continue.
  CheckpointSampler(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder);

  // `checkpoint`: a step folder of the run. threads 0: one per core. Throws what reading it throws.
  telemetry::TextGenerated write(const std::string& checkpoint, int threads) const;

 private:
  FileSystem& files_;
  const std::string prompt_text_;
  const int64_t tokens_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::vector<int32_t> prompt_;
};

}  // namespace tutti::train
