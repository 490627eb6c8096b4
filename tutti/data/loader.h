// Fills micro-batches on a background thread, ahead of the training loop.
//
//   Loader loader = ...; const Batch& batch = loader.next();   // valid until the next next()
//
// Legend: B rows of a micro-batch, T tokens of a row.
// Training: row b of a micro-batch is one sample of SamplePlan. Step s of the whole run takes
// samples [s G, (s + 1) G); this loader delivers the slice [first, first + count) of each step in
// micro-batches of B, so data-parallel ranks read disjoint slices of the same order.
// Evaluation: the windows [w T, w T + T) in order over the whole corpus; each of its
// tokens - 1 targets appears exactly once. The rest of the last window, and of the last
// micro-batch, is token 0 with target kIgnoredTarget. After the last micro-batch it starts over.
//
// One thread owns a loader. Errors of the background thread are thrown by next(); the destructor
// joins without waiting for slots to be consumed.
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/data/corpus.h"
#include "tutti/data/sampler.h"

namespace tutti::data {

inline constexpr int32_t kIgnoredTarget = -1;

struct Batch {
  const int32_t* tokens = nullptr;   // [B, T]
  const int32_t* targets = nullptr;  // [B, T]: targets[b, t] is the token after tokens[b, t]
  int64_t rows = 0;                  // B
  int64_t sequence = 0;              // T
  int64_t valid_targets = 0;         // targets that are not kIgnoredTarget
  // Training: global index of row 0's sample, and its epoch. Evaluation: index of row 0's window.
  int64_t first_sample = 0;
  int64_t epoch = 0;
};

struct TrainLoaderOptions {
  int64_t rows = 1;          // B
  int64_t global_batch = 0;  // G, samples of a step over all ranks; 0: `rows`
  int64_t slice_first = 0;   // this rank's samples of a step
  int64_t slice_count = 0;   // 0: global_batch; a multiple of `rows`
  int64_t start_step = 0;    // the step whose slice comes first
  int64_t vocabulary = 0;    // ids must be below it (else corrupt); 0: unchecked
  int slots = 3;             // micro-batches in flight, at least 2
};

struct EvalLoaderOptions {
  int64_t rows = 1;
  int64_t sequence = 0;    // T
  int64_t max_tokens = 0;  // evaluate the first so many targets only; 0: all
  int64_t vocabulary = 0;
  int slots = 3;
};

class Loader {
 public:
  Loader(std::shared_ptr<const Corpus> corpus, const SamplePlan& plan,
         const TrainLoaderOptions& options);
  Loader(std::shared_ptr<const Corpus> corpus, const EvalLoaderOptions& options);
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  const Batch& next();

  // Continues at the first micro-batch of `step` (training), or of the set for step 0
  // (evaluation). What was read ahead is dropped, and the last Batch is no longer valid.
  void seek(int64_t step);

  // Micro-batches of one step (training) or of one pass over the set (evaluation).
  int64_t batches_per_pass() const;
  // Time that next() has waited for the background thread, in total.
  double wait_seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti::data
