// Softmax, top-k choice and weights of a router and their gradients (moe_ops.h states the
// contract).
//   w_i = f p_i / s over the chosen, s = sum of the chosen p: dp_i = (f dw_i - sum_j dw_j w_j) / s
//   w_i = f p_i, not renormalized:                            dp_i = f dw_i
//   softmax:                                      dx_j = p_j (dp_j - sum_i dp_i p_i)
//   sigmoid:                                      dx_j = p_j (1 - p_j) dp_j
// Divisors have kLeastSum added, as DeepSeek's have: sigmoids of a row can all be 0 in f32.
// The balance loss of sigmoid scores is of q_j = p_j / S, S = sum of all p, with slope g_j of q_j:
//   dp_j = (g_j - sum_i g_i q_i) / S
// Rows have E numbers, a few to a few hundred: plain loops.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int64_t kRowGrain = 64;
constexpr float kLeastSum = 1e-20F;

float bias_of(const Vector& bias, int64_t e) {
  if (!bias) return 0;
  return bias.dtype == DType::bf16 ? to_f32(bias.as<bf16>()[e]) : bias.as<float>()[e];
}

// p[count] of the logits x[count], which may be the same memory; returns lse.
float probabilities_of(RouterScores scores, const float* x, int64_t count, float* p) {
  const float highest = *std::max_element(x, x + count);
  float sum = 0;
  for (int64_t e = 0; e < count; ++e) {
    const float relative = std::exp(x[e] - highest);
    sum += relative;
    p[e] = scores == RouterScores::sigmoid ? 1 / (1 + std::exp(-x[e])) : relative;
  }
  if (scores == RouterScores::softmax) {
    for (int64_t e = 0; e < count; ++e) p[e] /= sum;
  }
  return highest + std::log(sum);
}

// The mark of a group: the sum of its `best` largest scores.
float mark_of(const RouteForwardArgs& args, const float* p, int64_t first, int64_t count) {
  float sum = 0;
  float bound = std::numeric_limits<float>::infinity();  // what is above was taken,
  int64_t at = -1;                                       // and of what is equal all up to here
  for (int64_t i = 0; i < args.groups.best; ++i) {
    int64_t best = -1;
    float best_score = 0;
    for (int64_t e = first; e < first + count; ++e) {
      const float score = p[e] + bias_of(args.bias, e);
      if (score > bound || (score == bound && e <= at)) continue;
      if (best < 0 || score > best_score) {
        best = e;
        best_score = score;
      }
    }
    if (best < 0) break;  // of NaN
    sum += best_score;
    bound = best_score;
    at = best;
  }
  return sum;
}

// The groups that a row may choose from.
struct OpenGroups {
  bool open[kMostRouterGroups] = {};
};
OpenGroups open_groups(const RouteForwardArgs& args, const float* p, int64_t count) {
  OpenGroups out;
  float marks[kMostRouterGroups];
  const int64_t width = count / args.groups.count;
  for (int64_t g = 0; g < args.groups.count; ++g) marks[g] = mark_of(args, p, g * width, width);
  for (int64_t i = 0; i < args.groups.chosen; ++i) {
    int64_t best = -1;
    for (int64_t g = 0; g < args.groups.count; ++g) {
      if (!out.open[g] && (best < 0 || marks[g] > marks[best])) best = g;
    }
    out.open[best] = true;
  }
  return out;
}

void forward_row(const RouteForwardArgs& args, int64_t n) {
  const int64_t count = args.logits.cols;
  float* p = args.probabilities.row<float>(n);
  int32_t* chosen = args.experts.row<int32_t>(n);
  float* weights = args.weights.row<float>(n);

  args.lse.as<float>()[n] = probabilities_of(args.scores, args.logits.row<float>(n), count, p);
  const bool limited = args.groups.count > 1 && !args.given;
  const OpenGroups groups = limited ? open_groups(args, p, count) : OpenGroups{};
  const int64_t width = count / args.groups.count;

  // Comparisons with NaN are false, so a row of NaN chooses the first k experts, each once.
  float chosen_sum = 0;
  for (int64_t i = 0; args.given && i < args.experts.cols; ++i) {
    TUTTI_CHECK(chosen[i] >= 0 && chosen[i] < count, "route_forward: row {} has expert {}", n,
                chosen[i]);
    chosen_sum += p[chosen[i]];
  }
  for (int64_t i = 0; !args.given && i < args.experts.cols; ++i) {
    int32_t best = -1;
    float best_score = 0;
    for (int32_t e = 0; e < count; ++e) {
      if (limited && !groups.open[e / width]) continue;
      if (std::find(chosen, chosen + i, e) != chosen + i) continue;
      const float score = p[e] + bias_of(args.bias, e);
      if (best < 0 || score > best_score) {
        best = e;
        best_score = score;
      }
    }
    chosen[i] = best;
    chosen_sum += p[best];
  }
  const float divisor = args.renormalize ? chosen_sum + kLeastSum : 1;
  for (int64_t i = 0; i < args.experts.cols; ++i) {
    weights[i] = args.factor * p[chosen[i]] / divisor;
  }
}

// slope[e] = gradient of the balance loss of sequence b with respect to each of its probabilities
// of expert e, without the scale: E f_e / T. Returns the loss.
double balance_of_sequence(const RouteBackwardArgs& args, int64_t b, int64_t tokens,
                           double* slope) {
  const int64_t experts = args.probabilities.cols;
  const int64_t rows = args.probabilities.rows;
  const auto length = static_cast<double>(args.sequence > 0 ? args.sequence : tokens);
  const int32_t* counts = args.counts.row<int32_t>(b);
  std::fill(slope, slope + experts, 0.0);  // holds the sums of probabilities first
  const int64_t first = std::max<int64_t>(b * tokens - args.first_row, 0);
  const int64_t last = std::min((b + 1) * tokens - args.first_row, rows);
  for (int64_t t = first; t < last; ++t) {
    const float* p = args.probabilities.row<float>(t);
    const double sum = args.scores == RouterScores::sigmoid
                           ? std::accumulate(p, p + experts, 0.0) + kLeastSum
                           : 1.0;
    for (int64_t e = 0; e < experts; ++e) slope[e] += static_cast<double>(p[e]) / sum;
  }
  double loss = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const double share = static_cast<double>(experts) * counts[e] / length;
    loss += share * slope[e] / length;
    slope[e] = share / length;
  }
  return loss;
}

void assign(float* to, int64_t j, float x) { to[j] = x; }
void assign(bf16* to, int64_t j, float x) { to[j] = to_bf16(x); }

template <typename T>
void backward_row(const RouteBackwardArgs& args, int64_t n, const double* slope) {
  const int64_t count = args.probabilities.cols;
  const int64_t k = args.experts.cols;
  const float* p = args.probabilities.row<float>(n);
  const int32_t* chosen = args.experts.row<int32_t>(n);
  const float* w = args.weights.row<float>(n);
  const float* dw = args.d_weights.row<float>(n);

  float chosen_sum = 0;
  float dot = 0;
  for (int64_t i = 0; i < k; ++i) {
    chosen_sum += p[chosen[i]];
    dot += dw[i] * w[i];
  }
  const float divisor = args.renormalize ? chosen_sum + kLeastSum : 1;
  if (!args.renormalize) dot = 0;
  const auto d_chosen = [&](int64_t i) { return (args.factor * dw[i] - dot) / divisor; };
  const auto d_balance = [&](int64_t e) {
    return args.balance_scale * static_cast<float>(slope[e]);
  };
  T* d = args.d_logits.row<T>(n);
  if (args.scores == RouterScores::sigmoid) {
    const float sum = std::accumulate(p, p + count, 0.0F) + kLeastSum;
    float shared = 0;  // sum of slopes times shares
    for (int64_t e = 0; e < count; ++e) shared += d_balance(e) * p[e] / sum;
    for (int64_t e = 0; e < count; ++e) {
      float dp = (d_balance(e) - shared) / sum;
      for (int64_t i = 0; i < k; ++i) {
        if (chosen[i] == e) dp += d_chosen(i);
      }
      assign(d, e, p[e] * (1 - p[e]) * dp);
    }
    return;
  }
  float mean = 0;  // sum of dp p
  for (int64_t e = 0; e < count; ++e) mean += d_balance(e) * p[e];
  for (int64_t i = 0; i < k; ++i) mean += d_chosen(i) * p[chosen[i]];
  const float z = 2 * args.z_scale * args.lse.as<float>()[n];

  for (int64_t e = 0; e < count; ++e) {
    float dp = d_balance(e);
    for (int64_t i = 0; i < k; ++i) {
      if (chosen[i] == e) dp += d_chosen(i);
    }
    assign(d, e, p[e] * (dp - mean + z));
  }
}

}  // namespace

void cpu_route_forward(Stream& stream, const RouteForwardArgs& args) {
  const OpRecord what = describe(args);
  const double begin = begin_op(stream);
  if (args.logits.cols > 0) {
    parallel_ranges(args.logits.rows, kRowGrain, [&](int64_t first, int64_t last, int) {
      for (int64_t n = first; n < last; ++n) forward_row(args, n);
    });
  }
  record(stream, what, begin);
}

void cpu_route_backward(Stream& stream, const RouteBackwardArgs& args) {
  const OpRecord what = describe(args);
  const int64_t rows = args.probabilities.rows;
  const int64_t experts = args.probabilities.cols;
  const int64_t sequences = args.counts.rows;
  const int64_t tokens =
      args.rows_each > 0 ? args.rows_each : rows / std::max<int64_t>(sequences, 1);

  const double begin = begin_op(stream);
  auto* losses = static_cast<double*>(cpu_stream(stream).scratch(sequences * (1 + experts) * 8));
  double* slopes = losses + sequences;
  parallel_ranges(sequences, 1, [&](int64_t first, int64_t last, int) {
    for (int64_t b = first; b < last; ++b) {
      losses[b] = balance_of_sequence(args, b, tokens, slopes + b * experts);
    }
  });
  parallel_ranges(rows, kRowGrain, [&](int64_t first, int64_t last, int) {
    for (int64_t n = first; n < last; ++n) {
      const double* slope = slopes + (args.first_row + n) / tokens * experts;
      if (args.d_logits.dtype == DType::bf16) {
        backward_row<bf16>(args, n, slope);
      } else {
        backward_row<float>(args, n, slope);
      }
    }
  });

  auto* load = args.load.as<float>();
  auto* sums = args.sums.as<float>();
  if (args.beta == 0) {
    std::fill(load, load + experts, 0.0F);
    std::fill(sums, sums + 3, 0.0F);
  }
  double balance = 0;
  double z = 0;
  int64_t dropped = 0;
  for (int64_t b = 0; b < sequences; ++b) balance += losses[b];
  for (int64_t n = 0; n < rows; ++n) {
    const int32_t* chosen = args.experts.row<int32_t>(n);
    const int32_t* positions = args.positions.row<int32_t>(n);
    for (int64_t i = 0; i < args.experts.cols; ++i) {
      load[chosen[i]] += 1;
      if (positions[i] < 0) ++dropped;
    }
    const auto lse = static_cast<double>(args.lse.as<float>()[n]);
    z += lse * lse;
  }
  sums[0] += static_cast<float>(balance);
  sums[1] += static_cast<float>(z);
  sums[2] += static_cast<float>(dropped);

  record(stream, what, begin);
}

}  // namespace tutti::engine
