#include "tutti/data/loader/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"

namespace tutti::data {
namespace {

// Samples that are announced to a corpus in an object store before they are read: at 50 ms for each
// of 16 requests at a time they arrive within two seconds.
constexpr int64_t kAnnouncedSamples = 512;

// What a micro-batch reads; `k` counts micro-batches from the start of the run or the set.
struct Source {
  std::shared_ptr<const Dataset> dataset;
  int64_t rows = 1;
  bool training = true;
  int64_t global_batch = 0, slice_first = 0;     // training
  int64_t max_samples = 0, part = 0, parts = 1;  // evaluation
  int64_t batches_per_pass = 1;
};

struct Slot {
  std::vector<int32_t> tokens, targets, positions, starts;
  Batch batch;
};

void allocate(const Source& source, Slot& slot) {
  const auto size = static_cast<size_t>(source.rows * source.dataset->sequence());
  slot.tokens.resize(size);
  slot.targets.resize(size);
  slot.batch.tokens = slot.tokens.data();
  slot.batch.targets = slot.targets.data();
  slot.batch.rows = source.rows;
  slot.batch.sequence = source.dataset->sequence();
  if (!source.dataset->packed()) return;
  slot.positions.resize(size);
  slot.starts.resize(size);
  slot.batch.positions = slot.positions.data();
  slot.batch.starts = slot.starts.data();
}

SampleRows rows_of(Slot& slot, int64_t first) {
  SampleRows rows{slot.tokens.data() + first, slot.targets.data() + first};
  if (!slot.starts.empty()) {
    rows.positions = slot.positions.data() + first;
    rows.starts = slot.starts.data() + first;
  }
  return rows;
}

int64_t first_sample_of(const Source& source, int64_t k) {
  const int64_t pass = k / source.batches_per_pass;
  const int64_t within = k % source.batches_per_pass;
  return source.training ? pass * source.global_batch + source.slice_first + within * source.rows
                         : (within * source.parts + source.part) * source.rows;
}

// Announces the samples of micro-batch k.
void announce_needs(const Source& source, int64_t k) {
  const int64_t first = first_sample_of(source, k);
  for (int64_t sample = first; sample < first + source.rows; ++sample) {
    if (source.training) {
      source.dataset->training_sample_needed(sample);
    } else {
      source.dataset->evaluation_sample_needed(sample, source.max_samples);
    }
  }
}

void fill_slot(const Source& source, int64_t k, Slot& slot) {
  const Dataset& dataset = *source.dataset;
  Batch& batch = slot.batch;
  batch.facts = {};
  batch.first_sample = first_sample_of(source, k);
  batch.epoch = source.training ? dataset.epoch(batch.first_sample) : k / source.batches_per_pass;
  for (int64_t row = 0; row < source.rows; ++row) {
    const int64_t sample = batch.first_sample + row;
    const SampleRows rows = rows_of(slot, row * dataset.sequence());
    batch.facts += source.training ? dataset.training_sample(sample, rows)
                                   : dataset.evaluation_sample(sample, source.max_samples, rows);
  }
}

}  // namespace

// Slots are a ring: micro-batch k lies in slot k mod slots. The thread fills k while
// k < taken + slots - 1, so the slot the caller still reads (taken - 1) is never written.
struct Loader::State {
  Source source;
  std::vector<Slot> slots;
  mutable std::mutex mutex;
  std::condition_variable filled_changed, taken_changed;
  int64_t filled = 0;      // micro-batches [.., filled) are ready
  int64_t taken = 0;       // micro-batches [.., taken) were handed out
  int64_t announced = 0;   // micro-batches [.., announced) were announced
  int64_t generation = 0;  // counts seeks: what was begun before one is dropped
  bool stop = false;
  std::exception_ptr error;
  double wait_seconds = 0;
  std::thread thread;

  State(Source s, int slot_count, int64_t start) : source(std::move(s)) {
    TUTTI_CHECK(slot_count >= 2, "a loader has {} slots; at least 2 are needed", slot_count);
    slots.resize(static_cast<size_t>(slot_count));
    for (Slot& slot : slots) allocate(source, slot);
    filled = taken = announced = start;
    thread = std::thread([this] { run(); });
  }

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    taken_changed.notify_all();
    thread.join();
  }

  bool has_room() const {
    return !error && filled - taken < static_cast<int64_t>(slots.size()) - 1;
  }

  // By the thread alone: of an evaluation no more than the pass.
  void announce_ahead(int64_t k) {
    if (announced > k + kAnnouncedSamples) announced = k;  // a seek went back
    int64_t end = k + std::max<int64_t>(1, kAnnouncedSamples / source.rows);
    if (!source.training)
      end = std::min(end, (k / source.batches_per_pass + 1) * source.batches_per_pass);
    for (announced = std::max(announced, k); announced < end; ++announced) {
      announce_needs(source, announced);
    }
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      taken_changed.wait(lock, [this] { return stop || has_room(); });
      if (stop) return;
      const int64_t k = filled;
      const int64_t began_in = generation;
      Slot& slot = slots[static_cast<size_t>(k) % slots.size()];
      lock.unlock();
      std::exception_ptr caught;
      try {
        if (source.dataset->by_pieces()) announce_ahead(k);
        fill_slot(source, k, slot);
      } catch (...) {
        caught = std::current_exception();
      }
      lock.lock();
      if (generation != began_in) continue;  // a seek came between: this micro-batch is stale
      if (caught) {
        error = caught;
      } else {
        ++filled;
      }
      filled_changed.notify_all();
    }
  }
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, const TrainLoaderOptions& options) {
  Source source;
  source.rows = options.rows;
  source.global_batch = options.global_batch > 0 ? options.global_batch : options.rows;
  source.slice_first = options.slice_first;
  const int64_t count = options.slice_count > 0 ? options.slice_count : source.global_batch;
  TUTTI_CHECK(options.rows > 0 && count % options.rows == 0,
              "{} samples of a step are not whole micro-batches of {}", count, options.rows);
  TUTTI_CHECK(options.slice_first >= 0 && options.slice_first + count <= source.global_batch,
              "samples [{}, +{}) are not inside the global batch of {}", options.slice_first, count,
              source.global_batch);
  dataset->check_trainable();
  source.dataset = std::move(dataset);
  source.batches_per_pass = count / options.rows;
  const int64_t start = options.start_step * source.batches_per_pass;
  state_ = std::make_unique<State>(std::move(source), options.slots, start);
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, const EvalLoaderOptions& options) {
  Source source;
  source.training = false;
  source.rows = options.rows;
  source.max_samples = options.max_samples;
  source.part = options.part;
  source.parts = options.parts;
  TUTTI_CHECK(options.rows > 0, "evaluation of {} rows", options.rows);
  TUTTI_CHECK(options.part >= 0 && options.part < options.parts, "part {} of {}", options.part,
              options.parts);
  const int64_t samples = dataset->evaluation_samples(options.max_samples);
  const int64_t rows_of_all = options.rows * options.parts;
  source.batches_per_pass = (samples + rows_of_all - 1) / rows_of_all;
  source.dataset = std::move(dataset);
  state_ = std::make_unique<State>(std::move(source), options.slots, 0);
}

Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;

const Batch& Loader::next() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto ready = [&state] { return state.filled > state.taken || state.error; };
  if (!ready()) {
    const double start = monotonic_seconds();
    state.filled_changed.wait(lock, ready);
    state.wait_seconds += monotonic_seconds() - start;
  }
  // Micro-batches that were read before the error are still handed out.
  if (state.filled == state.taken) std::rethrow_exception(state.error);
  const Slot& slot = state.slots[static_cast<size_t>(state.taken) % state.slots.size()];
  ++state.taken;
  lock.unlock();
  state.taken_changed.notify_all();
  return slot.batch;
}

void Loader::seek(int64_t step) {
  State& state = *state_;
  TUTTI_CHECK(step >= 0, "seek to step {}", step);
  {
    const std::lock_guard lock(state.mutex);
    ++state.generation;
    state.filled = state.taken = step * state.source.batches_per_pass;
    state.error = nullptr;
  }
  state.taken_changed.notify_all();
}

int64_t Loader::batches_per_pass() const { return state_->source.batches_per_pass; }

double Loader::wait_seconds() const {
  const std::lock_guard lock(state_->mutex);
  return state_->wait_seconds;
}

}  // namespace tutti::data
