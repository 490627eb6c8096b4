// Which corpus a sample comes from when several are blended: a pure function of (weights, sample).
//
// Weights become whole shares q_c of a cycle of Q samples: exactly, where the weights times a power
// of ten are integers and Q stays within kMaxCycle; else rounded to Q = kMaxCycle by largest
// remainder. Sample i reads corpus c = order[i mod Q], and is that corpus' sample number
//
//   k = (i div Q) q_c + #{ j < i mod Q : order[j] = c }
//
// The order of a cycle is Tijdeman's ("The chairman assignment problem", Discrete Mathematics 32,
// 1980). With m corpora, n_c samples of corpus c among the first j - 1 and lag_c = j q_c / Q - n_c,
// sample j (from 1) goes, among the corpora with lag_c >= 1 / (2m - 2), to the one with the least
//
//   (1 - 1 / (2m - 2) - lag_c) / q_c
//
// ties to the first. His theorem: every prefix has every corpus within 1 - 1 / (2m - 2) of its
// share, which no rule betters for all weights. At the end of a cycle the deviations are whole and
// below one, so zero, and the cycle repeats. A window of samples is the difference of two prefixes:
// it is within one sample of every corpus' share for two corpora, and within 2 - 1 / (m - 1), so
// below two, for any number. (Within one in every window is impossible in general from three
// corpora on: each corpus would be a balanced word, and those partition the integers only for
// special weights such as 4 : 2 : 1; Fraenkel 1973, proven for three to seven letters.)
//
// Memory: Q bytes and m Q / 64 bytes of counts; looking up a sample reads at most kBlock bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::data {

struct BlendPosition {
  int64_t corpus = 0;
  int64_t index = 0;  // its sample number within the corpus
};

class Blend {
 public:
  static constexpr int64_t kMaxCycle = int64_t{1} << 20;
  static constexpr int64_t kMaxCorpora = 64;

  // Weights are positive, one per corpus. Throws usage when one is too small to be given a sample
  // of a cycle.
  explicit Blend(const std::vector<double>& weights);

  BlendPosition position(int64_t sample) const;
  // Samples of `corpus` among the first `samples`.
  int64_t count(int64_t corpus, int64_t samples) const;

  int64_t cycle() const { return static_cast<int64_t>(order_.size()); }                 // Q
  int64_t share(int64_t corpus) const { return shares_[static_cast<size_t>(corpus)]; }  // q_c
  int64_t corpora() const { return static_cast<int64_t>(shares_.size()); }

 private:
  static constexpr int64_t kBlock = 256;

  void fill_order();
  void count_blocks();

  std::vector<int64_t> shares_;
  std::vector<uint8_t> order_;
  std::vector<int32_t> before_;  // [blocks][corpora]: of each corpus before each block of the order
};

}  // namespace tutti::data
