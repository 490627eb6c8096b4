// Which tokens training sample i reads: a pure function of (seed, i), so the order does not
// depend on ranks, threads or batch sizes, and resuming needs nothing but i.
//
// The stream of N tokens is cut into n = (N - 1) / T windows of T tokens; the targets of a window
// are its tokens moved by one, hence N - 1. Sample i belongs to epoch e = i / n and reads window
//
//   w = permute_index(i mod n, n, key(seed, e))      each window once per epoch
//   first = min(offset(seed, e) + w T, N - 1 - T)    offset uniform in [0, T)
//
// The offset moves the grid every epoch, so that later epochs see other alignments. It may push
// the last window over the end; that one is pulled back and overlaps its neighbour instead.
#pragma once

#include <cstdint>

namespace tutti::data {

struct SampleWindow {
  int64_t first = 0;  // the window's tokens are [first, first + sequence)
  int64_t epoch = 0;
};

struct SamplePlan {
  int64_t tokens = 0;    // N
  int64_t sequence = 0;  // T
  uint64_t seed = 0;

  int64_t windows_per_epoch() const { return (tokens - 1) / sequence; }
  int64_t epoch_offset(int64_t epoch) const;
  SampleWindow window_of(int64_t sample) const;
};

// The window that sample `sample` reads when each epoch visits `windows` of them in an order of its
// own: w above.
int64_t shuffled_window(uint64_t seed, int64_t sample, int64_t windows);

// Throws usage when the corpus is too short for one window.
SamplePlan make_sample_plan(int64_t tokens, int64_t sequence, uint64_t seed);

}  // namespace tutti::data
