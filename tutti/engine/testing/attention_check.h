// Reference of causal attention for tests, in f64 with the full T x T matrix, and the tolerances of
// kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {

struct Shape {
  int64_t b, t, a, k, d;
  int64_t n() const { return b * t; }
  int64_t qkv_cols() const { return (a + 2 * k) * d; }
};

struct Reference {
  std::vector<double> out, lse, d_qkv;
};

// First row that row t of sequence b attends to.
using Starts = std::function<int64_t(int64_t b, int64_t t)>;
inline int64_t start_of_zero(int64_t /*b*/, int64_t /*t*/) { return 0; }

// O = softmax(scale Q K^T, causal) V, and the gradient of sum(O * d_out) with respect to Q, K, V.
// cap > 0: softcap of the scores.
inline Reference reference(const Shape& s, const std::vector<double>& qkv,
                           const std::vector<double>& d_out, double scale,
                           const Starts& start = start_of_zero, double cap = 0) {
  const auto capped = [&](double score) { return cap > 0 ? cap * std::tanh(score / cap) : score; };
  Reference r;
  r.out.assign(static_cast<size_t>(s.n() * s.a * s.d), 0.0);
  r.lse.assign(static_cast<size_t>(s.b * s.a * s.t), 0.0);
  r.d_qkv.assign(qkv.size(), 0.0);
  for (int64_t b = 0; b < s.b; ++b) {
    for (int64_t a = 0; a < s.a; ++a) {
      const int64_t kv = a / (s.a / s.k);
      const auto at = [&](int64_t t, int64_t head, int64_t c) {
        return static_cast<size_t>((b * s.t + t) * s.qkv_cols() + head * s.d + c);
      };
      const auto out_at = [&](int64_t t, int64_t c) {
        return static_cast<size_t>(((b * s.t + t) * s.a + a) * s.d + c);
      };
      for (int64_t i = 0; i < s.t; ++i) {
        std::vector<double> p(static_cast<size_t>(i + 1));
        std::vector<double> slope(static_cast<size_t>(i + 1), 1.0);
        double largest = -1e300;
        for (int64_t j = start(b, i); j <= i; ++j) {
          double dot = 0;
          for (int64_t c = 0; c < s.d; ++c) dot += qkv[at(i, a, c)] * qkv[at(j, s.a + kv, c)];
          const double score = capped(scale * dot);
          if (cap > 0) slope[static_cast<size_t>(j)] = 1 - score * score / (cap * cap);
          p[static_cast<size_t>(j)] = score;
          largest = std::max(largest, score);
        }
        double sum = 0;
        for (int64_t j = start(b, i); j <= i; ++j) {
          double& x = p[static_cast<size_t>(j)];
          sum += x = std::exp(x - largest);
        }
        for (double& x : p) x /= sum;
        r.lse[static_cast<size_t>((b * s.a + a) * s.t + i)] = largest + std::log(sum);
        double delta = 0;
        for (int64_t c = 0; c < s.d; ++c) {
          double o = 0;
          for (int64_t j = start(b, i); j <= i; ++j) {
            o += p[static_cast<size_t>(j)] * qkv[at(j, s.a + s.k + kv, c)];
          }
          r.out[out_at(i, c)] = o;
          delta += o * d_out[out_at(i, c)];
        }
        for (int64_t j = start(b, i); j <= i; ++j) {
          const double pj = p[static_cast<size_t>(j)];
          double dp = 0;
          for (int64_t c = 0; c < s.d; ++c) {
            dp += d_out[out_at(i, c)] * qkv[at(j, s.a + s.k + kv, c)];
            r.d_qkv[at(j, s.a + s.k + kv, c)] += pj * d_out[out_at(i, c)];
          }
          const double ds = pj * (dp - delta) * scale * slope[static_cast<size_t>(j)];
          for (int64_t c = 0; c < s.d; ++c) {
            r.d_qkv[at(i, a, c)] += ds * qkv[at(j, s.a + kv, c)];
            r.d_qkv[at(j, s.a + kv, c)] += ds * qkv[at(i, a, c)];
          }
        }
      }
    }
  }
  return r;
}

// ||actual - expected|| / ||expected||.
inline double relative_error(const TestMatrix& actual, const std::vector<double>& expected) {
  const std::vector<double> have = actual.values();
  double error = 0, size = 0;
  for (size_t i = 0; i < have.size(); ++i) {
    error += (have[i] - expected[i]) * (have[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  return size == 0 ? std::sqrt(error) : std::sqrt(error / size);
}

// `roundings` is the number of roundings to bf16 between operands and result. The relative error of
// each is at most 2^-8, and 2^-8 / sqrt(3) in the root mean square; in the norm they add like
// squares. Single elements that are small because of cancellation may have a larger error. f32: a
// few roundings of sums. `slack` multiplies all bounds.
inline void expect_close(const TestMatrix& actual, const std::vector<double>& expected,
                         double roundings, DType operands, double slack = 1) {
  const bool rounded = operands == DType::bf16;
  EXPECT_TRUE(close(actual, expected, slack * (rounded ? 6e-2 : 4e-5)));
  EXPECT_LE(relative_error(actual, expected),
            slack * (rounded ? 0x1p-8 * std::sqrt(roundings / 3) : 1e-6));
}
inline void expect_close(const TestMatrix& actual, const std::vector<double>& expected,
                         double roundings) {
  expect_close(actual, expected, roundings, actual.view().dtype);
}
inline constexpr double kForwardRoundings = 2;  // probabilities, result
inline constexpr double kBackwardRoundings =
    3;  // probabilities or their gradients, output in delta, result

// Operands of one call; outputs are poisoned. Rows have odd padding, so nothing is accidentally
// aligned.
struct AttentionCase {
  AttentionCase(const Shape& shape, DType dtype, double size = 1)
      : s(shape),
        qkv(random_matrix(s.n(), s.qkv_cols(), dtype, 11, size, 3)),
        d_out(random_matrix(s.n(), s.a * s.d, dtype, 12, 1, 1)),
        out(poisoned_matrix(s.n(), s.a * s.d, dtype, 5)),
        lse(poisoned_vector(s.b * s.a * s.t)),
        delta(poisoned_vector(s.b * s.a * s.t)),
        d_qkv(poisoned_matrix(s.n(), s.qkv_cols(), dtype, 7)) {}

  void forward(Stream& stream = test_stream()) {
    stream.ops().attention_forward(stream, {.batch = s.b,
                                            .sequence = s.t,
                                            .heads = s.a,
                                            .kv_heads = s.k,
                                            .head_dim = s.d,
                                            .scale = scale,
                                            .softcap = softcap,
                                            .qkv = qkv,
                                            .out = out,
                                            .lse = lse,
                                            .starts = starts_view()});
  }
  void backward(Stream& stream = test_stream()) {
    stream.ops().attention_backward(stream, {.batch = s.b,
                                             .sequence = s.t,
                                             .heads = s.a,
                                             .kv_heads = s.k,
                                             .head_dim = s.d,
                                             .scale = scale,
                                             .softcap = softcap,
                                             .qkv = qkv,
                                             .out = out,
                                             .d_out = d_out,
                                             .lse = lse,
                                             .delta = delta,
                                             .d_qkv = d_qkv,
                                             .starts = starts_view()});
  }
  Reference expected() const {
    const Starts given = [this](int64_t b, int64_t t) {
      return int64_t{starts[static_cast<size_t>(b * s.t + t)]};
    };
    return reference(
        s, qkv.values(), d_out.values(),
        scale > 0 ? static_cast<double>(scale) : 1 / std::sqrt(static_cast<double>(s.d)),
        starts.empty() ? Starts(start_of_zero) : given, static_cast<double>(softcap));
  }
  // Packs documents of these lengths, repeated, into every sequence.
  void pack(const std::vector<int64_t>& lengths) {
    size_t next = 0;
    for (int64_t b = 0; b < s.b; ++b) {
      for (int64_t t = 0; t < s.t;) {
        const int64_t end = std::min(s.t, t + lengths[next++ % lengths.size()]);
        const auto first = static_cast<int32_t>(t);
        for (; t < end; ++t) starts.push_back(first);
      }
    }
  }
  // Sets starts of a sliding window of `window` tokens.
  void use_window(int64_t window) {
    for (int64_t row = 0; row < s.n(); ++row) {
      starts.push_back(static_cast<int32_t>(std::max<int64_t>(0, row % s.t - window + 1)));
    }
  }
  Vector starts_view() {
    if (starts.empty()) return {};
    starts_storage = TestMatrix(1, static_cast<int64_t>(starts.size()), DType::i32)
                         .assign({starts.begin(), starts.end()});
    return starts_storage;
  }

  Shape s;
  TestMatrix qkv, d_out, out, lse, delta, d_qkv;
  float scale = 0;
  float softcap = 0;
  std::vector<int32_t> starts;  // empty: every row attends to all earlier rows
  TestMatrix starts_storage{1, 0, DType::i32};
};

inline std::string name(const Shape& s) {
  return fmt::format("B{} T{} A{} K{} D{}", s.b, s.t, s.a, s.k, s.d);
}

}  // namespace tutti::engine::testing
