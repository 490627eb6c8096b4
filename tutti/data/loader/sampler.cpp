#include "tutti/data/loader/sampler.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/rng.h"

namespace tutti::data {

int64_t SamplePlan::epoch_offset(int64_t epoch) const {
  const uint64_t word = random_u64(stream_key(seed, "window offset"), static_cast<uint64_t>(epoch));
  return static_cast<int64_t>(word % static_cast<uint64_t>(sequence));
}

int64_t shuffled_window(uint64_t seed, int64_t sample, int64_t windows) {
  const auto epoch = static_cast<uint64_t>(sample / windows);
  const uint64_t key = random_u64(stream_key(seed, "window order"), epoch);
  return static_cast<int64_t>(
      permute_index(static_cast<uint64_t>(sample % windows), static_cast<uint64_t>(windows), key));
}

SampleWindow SamplePlan::window_of(int64_t sample) const {
  TUTTI_CHECK(sample >= 0, "sample {}", sample);
  const int64_t windows = windows_per_epoch();
  const int64_t epoch = sample / windows;
  const int64_t window = shuffled_window(seed, sample, windows);
  return {std::min(epoch_offset(epoch) + window * sequence, tokens - 1 - sequence), epoch};
}

SamplePlan make_sample_plan(int64_t tokens, int64_t sequence, uint64_t seed) {
  if (sequence < 1) fail(ErrorKind::usage, "the sequence length is {}; it is at least 1", sequence);
  if (tokens < sequence + 1) {
    fail(ErrorKind::usage,
         "the corpus has {} tokens, too few for one sequence of {} and its last target; use more "
         "text or a shorter sequence",
         tokens, sequence);
  }
  return {tokens, sequence, seed};
}

}  // namespace tutti::data
