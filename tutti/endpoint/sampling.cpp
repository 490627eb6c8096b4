#include "tutti/endpoint/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/rng.h"

namespace tutti::endpoint {
namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

void check_range(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return;
  fail(ErrorKind::usage, "{}: {} is not between {} and {}", name, value, low, high);
}

void check_token(const char* name, int64_t token, int64_t vocabulary) {
  if (token >= 0 && token < vocabulary) return;
  fail(ErrorKind::usage, "{}: {} is not a token of the model, which has {}", name, token,
       vocabulary);
}

struct Candidate {
  int32_t token;
  float logit;
};
// By logit, and the lower token first of equals.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// The most likely of `all`, in order: up to where `enough(count)` holds of the first `count`. Most
// often few are enough, so ever more of them are put in order, never all at once.
template <typename Enough>
size_t sort_until(std::vector<Candidate>& all, const Enough& enough) {
  size_t sorted = 0;
  for (size_t next = std::min<size_t>(64, all.size()); sorted < all.size();
       next = std::min(all.size(), next * 8)) {
    std::partial_sort(all.begin() + static_cast<std::ptrdiff_t>(sorted),
                      all.begin() + static_cast<std::ptrdiff_t>(next), all.end(), before);
    for (; sorted < next; ++sorted) {
      if (enough(sorted)) return sorted;
    }
  }
  return all.size();
}

double log_sum_exp(std::span<const float> logits, float largest) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  return static_cast<double>(largest) + std::log(sum);
}

void add_logprobs(std::span<const float> logits, int count, SampledToken& out) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  const double total = log_sum_exp(logits, largest);
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - total);
  };
  out.logprob = logprob(logits[static_cast<size_t>(out.token)]);
  if (count <= 0) return;
  std::vector<Candidate> best;
  best.reserve(static_cast<size_t>(count) + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate one = {static_cast<int32_t>(i), logits[i]};
    if (best.size() == static_cast<size_t>(count) && !before(one, best.back())) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), one, before), one);
    if (best.size() > static_cast<size_t>(count)) best.pop_back();
  }
  for (const Candidate& one : best) out.top.push_back({one.token, logprob(one.logit)});
}

}  // namespace

void check(const SamplingParams& params, int64_t vocabulary) {
  constexpr double kMost = 1e9;
  if (params.max_tokens < 1) {
    fail(ErrorKind::usage, "max_tokens: {} is not at least 1", params.max_tokens);
  }
  check_range("temperature", params.temperature, 0, 100);
  check_range("top_p", params.top_p, 0, 1);
  check_range("top_k", static_cast<double>(params.top_k), 0, kMost);
  check_range("min_p", params.min_p, 0, 1);
  check_range("presence_penalty", params.presence_penalty, -2, 2);
  check_range("frequency_penalty", params.frequency_penalty, -2, 2);
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= kMost)) {
    fail(ErrorKind::usage, "repetition_penalty: {} is not positive", params.repetition_penalty);
  }
  check_range("top_logprobs", params.top_logprobs, -1, kMostTopLogprobs);
  for (const auto& [token, bias] : params.logit_bias) {
    check_token("logit_bias", token, vocabulary);
    check_range("logit_bias", static_cast<double>(bias), -100, 100);
  }
  for (const int32_t token : params.stop_tokens) check_token("stop_token_ids", token, vocabulary);
}

Sampler::Sampler(SamplingParams params, std::span<const int32_t> prompt)
    : params_(std::move(params)), key_(stream_key(params_.seed, "generate")) {
  if (params_.repetition_penalty == 1) return;
  for (const int32_t token : prompt) seen_[token];
}

void Sampler::adjust(std::span<float> logits) const {
  for (const auto& [token, bias] : params_.logit_bias) logits[static_cast<size_t>(token)] += bias;
  const auto repetition = static_cast<float>(params_.repetition_penalty);
  for (const auto& [token, seen] : seen_) {
    float& logit = logits[static_cast<size_t>(token)];
    if (repetition != 1) logit = logit > 0 ? logit / repetition : logit * repetition;
    if (seen.generated == 0) continue;
    logit -= static_cast<float>(params_.frequency_penalty * static_cast<double>(seen.generated) +
                                params_.presence_penalty);
  }
}

int32_t Sampler::draw(std::span<const float> logits) const {
  const auto most_likely = std::max_element(logits.begin(), logits.end());
  const auto likeliest = static_cast<int32_t>(most_likely - logits.begin());
  const float largest = *most_likely;
  if (params_.temperature == 0 || params_.top_k == 1 || !std::isfinite(largest)) return likeliest;
  const double uniform = random_uniform(key_, static_cast<uint64_t>(generated_));
  const auto weight = [&](float logit) {
    return std::exp(static_cast<double>(logit - largest) / params_.temperature);
  };
  const float least =
      params_.min_p > 0
          ? largest + static_cast<float>(params_.temperature * std::log(params_.min_p))
          : kImpossible;
  const auto vocabulary = static_cast<int64_t>(logits.size());
  const bool by_rank = params_.top_p < 1 || (params_.top_k > 0 && params_.top_k < vocabulary);
  double total = 0;
  if (!by_rank) {
    for (const float logit : logits) total += logit >= least ? weight(logit) : 0;
    double rest = uniform * total;
    int32_t last = likeliest;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] < least || logits[i] == kImpossible) continue;
      last = static_cast<int32_t>(i);
      rest -= weight(logits[i]);
      if (rest < 0) return last;
    }
    return last;
  }
  std::vector<Candidate> all;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= least && logits[i] > kImpossible) {
      all.push_back({static_cast<int32_t>(i), logits[i]});
    }
  }
  if (params_.top_k > 0 && params_.top_k < static_cast<int64_t>(all.size())) {
    const auto end = all.begin() + params_.top_k;
    std::nth_element(all.begin(), end - 1, all.end(), before);
    all.erase(end, all.end());
  }
  // What is added up is put in order first, so that the sum does not depend on how it was selected.
  if (params_.top_k > 0) {
    std::sort(all.begin(), all.end(), before);
  }
  for (const Candidate& one : all) total += weight(one.logit);
  double kept =
      0;  // of the nucleus: as few tokens as reach top_p, the one that crosses it included
  const size_t count = std::max<size_t>(1, sort_until(all, [&](size_t i) {
                                          if (i > 0 && kept >= params_.top_p * total) return true;
                                          kept += weight(all[i].logit);
                                          return false;
                                        }));
  double rest = uniform * kept;
  for (size_t i = 0; i < count; ++i) {
    rest -= weight(all[i].logit);
    if (rest < 0) return all[i].token;
  }
  return all[count - 1].token;
}

SampledToken Sampler::next(std::span<const float> logits) {
  SampledToken out;
  if (params_.logit_bias.empty() && seen_.empty()) {
    out.token = draw(logits);
  } else {
    adjusted_.assign(logits.begin(), logits.end());
    adjust(adjusted_);
    out.token = draw(adjusted_);
  }
  if (params_.top_logprobs >= 0) add_logprobs(logits, params_.top_logprobs, out);
  ++generated_;
  const bool counts = params_.repetition_penalty != 1 || params_.presence_penalty != 0 ||
                      params_.frequency_penalty != 0;
  if (counts) ++seen_[out.token].generated;
  return out;
}

}  // namespace tutti::endpoint
