#include "tutti/data/corpus/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::data {
namespace {

// The weights as integers without a common divisor, if they are decimal fractions whose sum stays
// within a cycle.
std::optional<std::vector<int64_t>> exact_shares(const std::vector<double>& weights) {
  constexpr int kDigits = 9;
  constexpr double kMost = 1e15;
  double scale = 1;
  for (int digits = 0; digits <= kDigits; ++digits, scale *= 10) {
    std::vector<int64_t> shares;
    for (const double weight : weights) {
      const double scaled = weight * scale;
      const double whole = std::round(scaled);
      if (scaled > kMost || whole < 1 || std::abs(scaled - whole) > 1e-9 * whole) break;
      shares.push_back(static_cast<int64_t>(whole));
    }
    if (shares.size() < weights.size()) continue;
    int64_t divisor = 0;
    for (const int64_t share : shares) divisor = std::gcd(divisor, share);
    int64_t sum = 0;
    for (int64_t& share : shares) sum += share /= divisor;
    if (sum <= Blend::kMaxCycle) return shares;
  }
  return std::nullopt;
}

std::vector<int64_t> rounded_shares(const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;
  int64_t left = Blend::kMaxCycle;
  for (size_t c = 0; c < weights.size(); ++c) {
    const double wanted = weights[c] / sum * static_cast<double>(Blend::kMaxCycle);
    shares.push_back(static_cast<int64_t>(wanted));
    remainders.emplace_back(static_cast<double>(shares.back()) - wanted, c);
    left -= shares.back();
  }
  std::sort(remainders.begin(), remainders.end());
  for (size_t i = 0; i < static_cast<size_t>(left); ++i) {
    ++shares[remainders[i % remainders.size()].second];
  }
  for (size_t c = 0; c < weights.size(); ++c) {
    if (shares[c] > 0) continue;
    fail(ErrorKind::usage,
         "a blend's weight of {} is {:.2g} of the sum of weights; the least that can be given is "
         "one sample in {}: leave the corpus out or give it more",
         weights[c], weights[c] / sum, Blend::kMaxCycle);
  }
  return shares;
}

}  // namespace

Blend::Blend(const std::vector<double>& weights) {
  TUTTI_CHECK(!weights.empty() && static_cast<int64_t>(weights.size()) <= kMaxCorpora,
              "a blend of {} corpora", weights.size());
  for (const double weight : weights) {
    TUTTI_CHECK(weight > 0 && std::isfinite(weight), "a blend's weight of {}", weight);
  }
  const auto exact = exact_shares(weights);
  shares_ = weights.size() == 1 ? std::vector<int64_t>{1}
            : exact             ? *exact
                                : rounded_shares(weights);
  order_.resize(static_cast<size_t>(std::accumulate(shares_.begin(), shares_.end(), int64_t{0})));
  fill_order();
  count_blocks();
}

// In integers: lag Q and everything else times Q (2m - 2).
void Blend::fill_order() {
  const auto cycle = static_cast<int64_t>(order_.size());
  const size_t corpora = shares_.size();
  if (corpora == 1) return;
  const auto twice = static_cast<int64_t>(2 * corpora - 2);
  std::vector<int64_t> lags(corpora, 0);
  for (uint8_t& chosen : order_) {
    size_t best = corpora;
    int64_t best_slack = 0;
    for (size_t c = 0; c < corpora; ++c) {
      lags[c] += shares_[c];
      if (lags[c] * twice < cycle) continue;
      const int64_t slack = cycle * (twice - 1) - lags[c] * twice;
      if (best == corpora || slack * shares_[best] < best_slack * shares_[c]) {
        best = c;
        best_slack = slack;
      }
    }
    TUTTI_CHECK(best < corpora, "no corpus is due in a cycle of {}", cycle);
    lags[best] -= cycle;
    chosen = static_cast<uint8_t>(best);
  }
}

void Blend::count_blocks() {
  std::vector<int32_t> counts(shares_.size(), 0);
  for (size_t i = 0; i < order_.size(); ++i) {
    if (i % kBlock == 0) before_.insert(before_.end(), counts.begin(), counts.end());
    ++counts[order_[i]];
  }
  for (size_t c = 0; c < shares_.size(); ++c) {
    TUTTI_CHECK(counts[c] == shares_[c], "corpus {} has {} of a cycle instead of {}", c, counts[c],
                shares_[c]);
  }
}

int64_t Blend::count(int64_t corpus, int64_t samples) const {
  const int64_t cycles = samples / cycle();
  const int64_t within = samples % cycle();
  const int64_t block = within / kBlock;
  const auto begin = order_.begin() + block * kBlock;
  const auto wanted = static_cast<uint8_t>(corpus);
  return cycles * share(corpus) + before_[static_cast<size_t>(block * corpora() + corpus)] +
         std::count(begin, order_.begin() + within, wanted);
}

BlendPosition Blend::position(int64_t sample) const {
  TUTTI_CHECK(sample >= 0, "sample {}", sample);
  const int64_t corpus = order_[static_cast<size_t>(sample % cycle())];
  return {corpus, count(corpus, sample)};
}

}  // namespace tutti::data
