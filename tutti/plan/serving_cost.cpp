#include "tutti/plan/serving_cost.h"

#include <algorithm>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/plan/collectives.h"

namespace tutti::plan {
namespace {

constexpr double kBandwidthShare = 0.7;
constexpr double kPeakShare = 0.5;
constexpr double kLaunchesPerLayer = 10;
constexpr double kLaunchSeconds = 4e-6;
constexpr double kBufferShare = 0.1;  // of memory
// Of a measured prompt, what computing takes at least, however much is read meanwhile.
constexpr double kLeastComputed = 0.3;

double inverse(double rate) { return rate > 0 ? 1 / rate : 0; }

spec::InferenceWork sum_of(const MeasuredPasses& measured) {
  spec::InferenceWork sum;
  for (const spec::InferenceWork& pass : measured.passes) {
    sum.product_flops += pass.product_flops;
    sum.attention_flops += pass.attention_flops;
    sum.weight_bytes += pass.weight_bytes;
    sum.cache_bytes += pass.cache_bytes;
    sum.rows += pass.rows;
  }
  return sum;
}

}  // namespace

ServingRates assumed_rates(const catalog::Chip& chip, const spec::ModelConfig& model) {
  if (chip.memory_bytes_per_second <= 0 || chip.bf16_flops <= 0) {
    fail(ErrorKind::unsupported,
         "chip {}: its memory's bytes per second or its 16-bit peak is not published; measure it "
         "with 'tutti bench inference --json' and give --measured FILE",
         chip.name);
  }
  ServingRates out;
  out.bytes_per_second = kBandwidthShare * chip.memory_bytes_per_second;
  out.few_row_flops = out.many_row_flops = kPeakShare * chip.bf16_flops;
  out.pass_seconds = static_cast<double>(model.layers) * kLaunchesPerLayer * kLaunchSeconds;
  return out;
}

ServingRates fitted_rates(std::span<const MeasuredPasses> few,
                          std::span<const MeasuredPasses> many) {
  if (few.empty() || many.empty()) {
    fail(ErrorKind::usage,
         "--measured: both a prompt and answers are needed; write it with 'tutti bench inference "
         "--json'");
  }
  // Minimises the sum over measurements of (x w/t + y f/t - 1)^2 for x = 1/B, y = 1/F >= 0.
  double ww = 0, ff = 0, wf = 0, w1 = 0, f1 = 0;
  for (const MeasuredPasses& one : few) {
    const spec::InferenceWork sum = sum_of(one);
    const double w = sum.bytes() / one.seconds;
    const double f = sum.flops() / one.seconds;
    ww += w * w;
    ff += f * f;
    wf += w * f;
    w1 += w;
    f1 += f;
  }
  const double determinant = ww * ff - wf * wf;
  double x = w1 / ww;
  double y = 0;
  if (determinant > 1e-9 * ww * ff) {
    const double both_x = (w1 * ff - f1 * wf) / determinant;
    const double both_y = (f1 * ww - w1 * wf) / determinant;
    if (both_x > 0 && both_y >= 0) {
      x = both_x;
      y = both_y;
    }
  }
  ServingRates out;
  out.bytes_per_second = 1 / x;
  out.few_row_flops = y > 0 ? 1 / y : 0;
  double flops = 0;
  double seconds = 0;
  for (const MeasuredPasses& one : many) {
    const spec::InferenceWork sum = sum_of(one);
    flops += sum.flops();
    seconds += std::max(one.seconds - x * sum.bytes(), kLeastComputed * one.seconds);
  }
  out.many_row_flops = flops / seconds;
  return out;
}

ServingCost::ServingCost(const ServingRates& rates, const spec::ModelConfig& model,
                         const catalog::System* system, int64_t chips)
    : rates_(rates),
      hidden_bytes_(2 * static_cast<double>(model.hidden)),
      layers_(static_cast<double>(model.layers)),
      system_(system),
      chips_(chips) {}

double ServingCost::pass_seconds(const spec::InferenceWork& work) const {
  const auto chips = static_cast<double>(chips_);
  const double rate = work.rows > kFewServedRows ? rates_.many_row_flops : rates_.few_row_flops;
  double seconds = rates_.pass_seconds + work.bytes() * inverse(rates_.bytes_per_second) / chips +
                   work.flops() * inverse(rate) / chips;
  if (chips_ > 1 && system_ != nullptr) {
    const Network network = {.system = system_};
    const Group group = {.ranks = chips_};
    seconds += 2 * layers_ *
               all_reduce_seconds(network, group, hidden_bytes_ * static_cast<double>(work.rows));
  }
  return seconds;
}

ServingMemory serving_memory(const spec::InferenceProgram& program, double chip_memory_bytes,
                             int64_t chips) {
  ServingMemory out;
  out.weight_bytes = static_cast<double>(program.weight_bytes());
  out.cache_bytes =
      (1 - kBufferShare) * chip_memory_bytes * static_cast<double>(chips) - out.weight_bytes;
  const auto token_bytes = static_cast<double>(std::max<int64_t>(program.cache_token_bytes(), 1));
  out.cache_tokens = std::max<int64_t>(0, static_cast<int64_t>(out.cache_bytes / token_bytes));
  return out;
}

}  // namespace tutti::plan
