// Fills micro-batches on a background thread, ahead of the training loop.
//
//   Loader loader = ...; const Batch& batch = loader.next();   // valid until the next next()
//
// Legend: B rows of a micro-batch (samples), T tokens of a sample.
// Training: row b of a micro-batch is one sample of the Dataset's order. Step s of the whole run
// takes samples [s G, (s + 1) G); this loader delivers the slice [first, first + count) of each
// step in micro-batches of B, so data-parallel ranks read disjoint slices of the same order.
// Evaluation: the Dataset's evaluation samples in order; what is left of the last micro-batch is
// padding. After the last micro-batch it starts over.
//
// One thread owns a loader. Errors of the background thread are thrown by next(); the destructor
// joins without waiting for slots to be consumed.
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/data/corpus/dataset.h"

namespace tutti::data {

struct Batch {
  const int32_t* tokens = nullptr;     // [B, T]
  const int32_t* targets = nullptr;    // [B, T]: the next token, or kIgnoredTarget
  const int32_t* positions = nullptr;  // [B, T] when packed, else null: SampleRows
  const int32_t* starts = nullptr;     // likewise
  int64_t rows = 0;                    // B
  int64_t sequence = 0;                // T
  SampleFacts facts;                   // sums over the samples
  // Training: global index of row 0's sample, and its epoch. Evaluation: its number in the set.
  int64_t first_sample = 0;
  int64_t epoch = 0;
};

struct TrainLoaderOptions {
  int64_t rows = 1;          // B
  int64_t global_batch = 0;  // G, samples of a step over all ranks; 0: `rows`
  int64_t slice_first = 0;   // this rank's samples of a step
  int64_t slice_count = 0;   // 0: global_batch; a multiple of `rows`
  int64_t start_step = 0;    // the step whose slice comes first
  int slots = 3;             // in-flight micro-batches, at least 2
};

struct EvalLoaderOptions {
  int64_t rows = 1;
  int64_t max_samples = 0;  // evaluate the first so many samples only; 0: all
  // Of the set's micro-batches this rank takes number `part`, part + parts, ...; all parts have
  // equally many, the last of which may be padding.
  int64_t part = 0;
  int64_t parts = 1;
  int slots = 3;
};

class Loader {
 public:
  Loader(std::shared_ptr<const Dataset> dataset, const TrainLoaderOptions& options);
  Loader(std::shared_ptr<const Dataset> dataset, const EvalLoaderOptions& options);
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
