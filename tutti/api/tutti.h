// Tutti as a library: trains a model in the caller's process. This header is all there is; it needs
// no other of Tutti, and code that was built against it runs with every patch release of the same
// minor version.
//
//   tutti::Training training("recipe.yaml", {"data.train=corpora/books"}, "runs/mine");
//   training.train(100, [](const tutti::TrainingStep& step) { std::cout << step.loss << "\n"; });
//
// A recipe is the whole truth of a run (recipes/gpt2-124m.yaml explains the keys), and a run lives
// in a folder, as those of `tutti train`: each can resume what the other has saved, to the bit. One
// process, one rank; several ranks are started by `tutti train --nproc`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti {

// What went wrong outside the program: a wrong recipe key, a missing file, a full disk. The message
// names the key or path, the value and what is accepted.
class __attribute__((visibility("default"))) TrainingError : public std::runtime_error {
 public:
  TrainingError(const std::string& kind, const std::string& message);
  ~TrainingError() override;
  // "usage", "not_found", "permission", "corrupt", "no_space", "io", "unsupported", "diverged".
  const std::string& kind() const;

 private:
  std::string kind_;
};

// One optimizer step.
struct TrainingStep {
  int64_t step = 0;    // of the whole run, 1 for the first
  int64_t tokens = 0;  // of the whole run so far
  double loss = 0;     // mean over the targets of the step, nats per token
  double gradient_norm = 0;
  double learning_rate = 0;
  double seconds = 0;
  bool skipped = false;  // gradients were not finite; parameters stayed as they were
};

struct TrainingResult {
  int64_t steps = 0;  // of the whole run
  double loss = 0;    // of the last step
  double tokens_per_second = 0;
  double validation_loss = 0;  // of the last evaluation; NaN: none
  bool finished = false;       // the target or the last step of the recipe is reached
  std::string checkpoint;      // folder of the newest checkpoint
};

class __attribute__((visibility("default"))) Training {
 public:
  // `recipe` is the path of a recipe; `overrides` set keys of it, "train.seed=2". The run folder is
  // created; when it holds a checkpoint, training resumes there. Model presets are found in
  // $TUTTI_HOME/recipes/models, or where Tutti is installed. Throws TrainingError.
  explicit Training(const std::string& recipe, const std::vector<std::string>& overrides,
                    const std::string& run_folder);
  ~Training();
  Training(Training&&) noexcept;
  Training& operator=(Training&&) noexcept;

  // At most `steps` (1 or more) further steps; fewer when the recipe ends. Then saves a checkpoint,
  // and returns when it is durable. `observe` sees each step after it is done, on another thread
  // than the caller's, one at a time. Throws TrainingError; what was saved before stays.
  TrainingResult train(int64_t steps, const std::function<void(const TrainingStep&)>& observe = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

__attribute__((visibility("default"))) const char* version();

}  // namespace tutti
