#include "tutti/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/data/corpus_format.h"

namespace tutti::data {
namespace {

// What a micro-batch reads; `k` counts micro-batches from the start of the run or the set.
struct Source {
  std::shared_ptr<const Corpus> corpus;
  int64_t rows = 1;
  int64_t sequence = 1;
  int64_t vocabulary = 0;
  bool training = true;
  SamplePlan plan;                            // training
  int64_t global_batch = 0, slice_first = 0;  // training
  int64_t targets = 0;                        // evaluation
  int64_t batches_per_pass = 1;
};

struct Slot {
  std::vector<int32_t> tokens, targets;
  Batch batch;
};

void read_checked(const Source& source, int64_t first, int64_t count, int32_t* out) {
  source.corpus->read(first, count, out);
  if (source.vocabulary == 0) return;
  const auto limit = static_cast<uint32_t>(source.vocabulary);
  uint32_t largest = 0;  // negative ids become large
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<uint32_t>(out[i]));
  if (largest < limit) return;
  int64_t at = 0;
  while (static_cast<uint32_t>(out[at]) < limit) ++at;
  fail(ErrorKind::corrupt, "'{}': token {} has the id {}, outside the vocabulary of {}",
       corpus_paths(source.corpus->prefix()).bin, first + at, out[at], source.vocabulary);
}

// Fills one row from tokens [first, first + count] of the stream; what is beyond count is padding.
void fill_row(const Source& source, int64_t first, int64_t count, std::vector<int32_t>& scratch,
              int32_t* tokens, int32_t* targets) {
  if (count > 0) {
    scratch.resize(static_cast<size_t>(source.sequence + 1));
    read_checked(source, first, count + 1, scratch.data());
    std::copy_n(scratch.data(), count, tokens);
    std::copy_n(scratch.data() + 1, count, targets);
  }
  std::fill(tokens + count, tokens + source.sequence, 0);
  std::fill(targets + count, targets + source.sequence, kIgnoredTarget);
}

void fill_slot(const Source& source, int64_t k, std::vector<int32_t>& scratch, Slot& slot) {
  Batch& batch = slot.batch;
  const int64_t T = source.sequence;
  const int64_t pass = k / source.batches_per_pass;
  const int64_t within = k % source.batches_per_pass;
  batch.valid_targets = 0;
  if (source.training) {
    batch.first_sample = pass * source.global_batch + source.slice_first + within * source.rows;
    batch.epoch = batch.first_sample / source.plan.windows_per_epoch();
  } else {
    batch.first_sample = within * source.rows;
    batch.epoch = pass;
  }
  for (int64_t row = 0; row < source.rows; ++row) {
    const int64_t sample = batch.first_sample + row;
    const int64_t first = source.training ? source.plan.window_of(sample).first : sample * T;
    const int64_t count = source.training ? T : std::clamp<int64_t>(source.targets - first, 0, T);
    fill_row(source, first, count, scratch, slot.tokens.data() + row * T,
             slot.targets.data() + row * T);
    batch.valid_targets += count;
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
  int64_t generation = 0;  // counts seeks: what was begun before one is dropped
  bool stop = false;
  std::exception_ptr error;
  double wait_seconds = 0;
  std::thread thread;

  State(Source s, int slot_count, int64_t start) : source(std::move(s)) {
    TUTTI_CHECK(slot_count >= 2, "a loader has {} slots; at least 2 are needed", slot_count);
    slots.resize(static_cast<size_t>(slot_count));
    const auto size = static_cast<size_t>(source.rows * source.sequence);
    for (Slot& slot : slots) {
      slot.tokens.resize(size);
      slot.targets.resize(size);
      slot.batch = {slot.tokens.data(), slot.targets.data(), source.rows, source.sequence};
    }
    filled = taken = start;
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

  void run() {
    std::vector<int32_t> scratch;
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
        fill_slot(source, k, scratch, slot);
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

Loader::Loader(std::shared_ptr<const Corpus> corpus, const SamplePlan& plan,
               const TrainLoaderOptions& options) {
  Source source;
  source.rows = options.rows;
  source.sequence = plan.sequence;
  source.vocabulary = options.vocabulary;
  source.plan = plan;
  source.global_batch = options.global_batch > 0 ? options.global_batch : options.rows;
  source.slice_first = options.slice_first;
  const int64_t count = options.slice_count > 0 ? options.slice_count : source.global_batch;
  TUTTI_CHECK(options.rows > 0 && count % options.rows == 0,
              "{} samples of a step are not whole micro-batches of {}", count, options.rows);
  TUTTI_CHECK(options.slice_first >= 0 && options.slice_first + count <= source.global_batch,
              "samples [{}, +{}) are not inside the global batch of {}", options.slice_first, count,
              source.global_batch);
  TUTTI_CHECK(plan.tokens <= corpus->tokens(), "the sample plan has {} tokens, the corpus {}",
              plan.tokens, corpus->tokens());
  TUTTI_CHECK(plan.windows_per_epoch() > 0, "the sample plan has no window");
  source.corpus = std::move(corpus);
  source.batches_per_pass = count / options.rows;
  const int64_t start = options.start_step * source.batches_per_pass;
  state_ = std::make_unique<State>(std::move(source), options.slots, start);
}

Loader::Loader(std::shared_ptr<const Corpus> corpus, const EvalLoaderOptions& options) {
  Source source;
  source.training = false;
  source.rows = options.rows;
  source.sequence = options.sequence;
  source.vocabulary = options.vocabulary;
  TUTTI_CHECK(options.rows > 0 && options.sequence > 0, "evaluation of {} rows of {} tokens",
              options.rows, options.sequence);
  source.targets = corpus->tokens() - 1;
  if (options.max_tokens > 0) source.targets = std::min(source.targets, options.max_tokens);
  if (source.targets < 1) {
    fail(ErrorKind::usage, "corpus '{}' has {} token: at least 2 are needed to evaluate on it",
         corpus->prefix(), corpus->tokens());
  }
  const int64_t windows = (source.targets + options.sequence - 1) / options.sequence;
  source.batches_per_pass = (windows + options.rows - 1) / options.rows;
  source.corpus = std::move(corpus);
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
