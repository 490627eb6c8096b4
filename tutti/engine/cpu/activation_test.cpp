#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "tutti/engine/recorder.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::for_each_isa;
using testing::for_each_isa_and_dtype;
using testing::make_test_stream;
using testing::poisoned_matrix;
using testing::random_matrix;
using testing::random_vector;
using testing::test_stream;
using testing::TestMatrix;
using Values = std::vector<double>;

// geglu is CPU only.
const std::vector<Activation>& kinds_of_activation() {
  static const std::vector<Activation> all =
      testing::on_cpu()
          ? std::vector<Activation>{Activation::gelu, Activation::swiglu, Activation::geglu}
          : std::vector<Activation>{Activation::gelu, Activation::swiglu};
  return all;
}
constexpr int64_t kRows[] = {1, 3, 21};
constexpr int64_t kColumns[] = {1, 24, 101, 768};

int64_t input_columns(Activation kind, int64_t f) { return kind == Activation::gelu ? f : 2 * f; }

// The definitions of ops.h, in f64.
double gelu(double x) {
  const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(u));
}
double gelu_slope(double x) {
  const double k = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

// [N, F] or [N, 2F] inputs after the bias.
Values biased(const TestMatrix& x, const TestMatrix* bias) {
  Values out;
  for (int64_t r = 0; r < x.rows(); ++r) {
    for (int64_t c = 0; c < x.cols(); ++c) {
      out.push_back(x.at(r, c) + (bias == nullptr ? 0 : bias->at(0, c)));
    }
  }
  return out;
}

Values forward(Activation kind, const Values& x, int64_t n, int64_t f) {
  Values y;
  for (int64_t r = 0; r < n; ++r) {
    const double* row = x.data() + r * input_columns(kind, f);
    for (int64_t j = 0; j < f; ++j) {
      const double gate = kind == Activation::swiglu ? silu(row[j]) : gelu(row[j]);
      y.push_back(kind == Activation::gelu ? gate : gate * row[f + j]);
    }
  }
  return y;
}

Values backward(Activation kind, const Values& x, const Values& dy, int64_t n, int64_t f) {
  Values dx(x.size());
  for (int64_t r = 0; r < n; ++r) {
    const double* row = x.data() + r * input_columns(kind, f);
    double* out = dx.data() + r * input_columns(kind, f);
    const double* d = dy.data() + r * f;
    for (int64_t j = 0; j < f; ++j) {
      if (kind == Activation::gelu) {
        out[j] = d[j] * gelu_slope(row[j]);
      } else {
        const bool swiglu = kind == Activation::swiglu;
        out[j] = d[j] * row[f + j] * (swiglu ? silu_slope(row[j]) : gelu_slope(row[j]));
        out[f + j] = d[j] * (swiglu ? silu(row[j]) : gelu(row[j]));
      }
    }
  }
  return dx;
}

TEST(Activation, ReferenceGradientsEqualFiniteDifferences) {
  constexpr double kStep = 1e-5;
  for (const Activation kind : kinds_of_activation()) {
    Values x = random_matrix(3, input_columns(kind, 5), DType::f32, 1, 2.0).values();
    const Values dy = random_matrix(3, 5, DType::f32, 2).values();
    const Values dx = backward(kind, x, dy, 3, 5);
    const auto loss = [&] {
      const Values y = forward(kind, x, 3, 5);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
      return sum;
    };
    for (size_t i = 0; i < x.size(); ++i) {
      const double before = x[i];
      x[i] = before + kStep;
      const double above = loss();
      x[i] = before - kStep;
      const double below = loss();
      x[i] = before;
      EXPECT_NEAR((above - below) / (2 * kStep), dx[i], 1e-7);
    }
  }
}

TEST(Activation, EqualsReference) {
  for_each_isa_and_dtype([&](DType dtype) {
    for (const Activation kind : kinds_of_activation()) {
      for (const int64_t n : kRows) {
        for (const int64_t f : kColumns) {
          for (const bool with_bias : {false, true}) {
            SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " N " << n
                                              << " F " << f << " bias " << with_bias);
            const int64_t columns = input_columns(kind, f);
            const TestMatrix x = random_matrix(n, columns, dtype, 3, 2.0, 3);
            const TestMatrix bias = random_vector(columns, dtype, 4);
            const TestMatrix dy = random_matrix(n, f, dtype, 5, 1.0, 2);
            const Vector bias_view = with_bias ? bias.vec() : Vector{};
            const Values inputs = biased(x, with_bias ? &bias : nullptr);

            TestMatrix y = poisoned_matrix(n, f, dtype, 1);
            test_stream().ops().activation_forward(test_stream(), {kind, x, bias_view, y});
            EXPECT_TRUE(close(y, forward(kind, inputs, n, f)));

            TestMatrix dx = poisoned_matrix(n, columns, dtype, 5);
            test_stream().ops().activation_backward(test_stream(), {kind, x, bias_view, dy, dx});
            EXPECT_TRUE(close(dx, backward(kind, inputs, dy.values(), n, f)));

            // In place: into dy (gelu), into x (gated).
            TestMatrix reused = kind == Activation::gelu ? dy : x;
            ActivationBackwardArgs args{kind, x, bias_view, dy, reused};
            (kind == Activation::gelu ? args.dy : args.x) = reused;
            test_stream().ops().activation_backward(test_stream(), args);
            EXPECT_EQ(reused.values(), dx.values());
            EXPECT_TRUE(reused.outside_untouched());
          }
        }
      }
    }
  });
}

// The definition of ops.h and its derivatives, including values beyond the limits.
TEST(Activation, ClampedSwigluEqualsReference) {
  if (!testing::on_cpu()) GTEST_SKIP() << "skipped: CPU-only operation";
  const auto one = [](double gate, double up) {
    const double g = std::min(gate, 7.0);
    return (std::clamp(up, -7.0, 7.0) + 1) * g / (1 + std::exp(-1.702 * g));
  };
  for_each_isa_and_dtype([&](DType dtype) {
    for (const int64_t f : kColumns) {
      const TestMatrix x = random_matrix(3, 2 * f, dtype, 3, 5.0, 3);
      const TestMatrix bias = random_vector(2 * f, dtype, 4);
      const TestMatrix dy = random_matrix(3, f, dtype, 5, 1.0, 2);
      const Values inputs = biased(x, &bias);
      Values y_wanted, dx_wanted(inputs.size());
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t j = 0; j < f; ++j) {
          const auto gate_at = static_cast<size_t>(r * 2 * f + j);
          const double gate = inputs[gate_at];
          const double up = inputs[gate_at + static_cast<size_t>(f)];
          y_wanted.push_back(one(gate, up));
          constexpr double kStep = 1e-6;
          dx_wanted[gate_at] =
              dy.at(r, j) * (one(gate + kStep, up) - one(gate - kStep, up)) / (2 * kStep);
          dx_wanted[gate_at + static_cast<size_t>(f)] =
              dy.at(r, j) * (one(gate, up + kStep) - one(gate, up - kStep)) / (2 * kStep);
        }
      }
      TestMatrix y = poisoned_matrix(3, f, dtype, 1);
      TestMatrix dx = poisoned_matrix(3, 2 * f, dtype, 5);
      constexpr Activation kKind = Activation::clamped_swiglu;
      test_stream().ops().activation_forward(test_stream(), {kKind, x, bias.vec(), y});
      EXPECT_TRUE(close(y, y_wanted));
      test_stream().ops().activation_backward(test_stream(), {kKind, x, bias.vec(), dy, dx});
      EXPECT_TRUE(close(dx, dx_wanted, dtype == DType::bf16 ? 2e-2 : 1e-5));
    }
  });
}

// Element-wise relative accuracy from the saturated ends to zero: silu(x) = x / (1 + e^-x), which
// approaches x e^x on the left, so this also bounds the error of exp.
TEST(Activation, RelativeErrorStaysSmallOverTheWholeRange) {
  constexpr int64_t kCount = 4001;
  TestMatrix x = testing::zero_matrix(1, 2 * kCount);
  for (int64_t j = 0; j < kCount; ++j) {
    x.set(0, j, -84.0 + 0.0421 * static_cast<double>(j));
    x.set(0, kCount + j, 1);
  }
  const TestMatrix gelu_x = [&] {
    TestMatrix out = testing::zero_matrix(1, kCount);
    for (int64_t j = 0; j < kCount; ++j) out.set(0, j, -6.0 + 0.003 * static_cast<double>(j));
    return out;
  }();
  for_each_isa([&] {
    TestMatrix y = poisoned_matrix(1, kCount);
    test_stream().ops().activation_forward(test_stream(), {Activation::swiglu, x, {}, y});
    for (int64_t j = 0; j < kCount; ++j) {
      const double expected = silu(x.at(0, j));
      ASSERT_NEAR(y.at(0, j), expected, 4e-7 * std::abs(expected)) << "x " << x.at(0, j);
    }
    // z = 2u reaches -25 here; the rounding of z itself is amplified by |z|.
    test_stream().ops().activation_forward(test_stream(), {Activation::gelu, gelu_x, {}, y});
    for (int64_t j = 0; j < kCount; ++j) {
      const double v = gelu_x.at(0, j);
      const double z = 2 * std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
      const double expected = v / (1 + std::exp(-z));
      ASSERT_NEAR(y.at(0, j), expected, 4e-7 * (1 + std::abs(z)) * std::abs(expected)) << v;
    }
  });
}

TEST(Activation, SaturatesAndPropagatesNaN) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const Values inputs = {-1e30, -1000, -89, -20, 20, 89, 1000, 1e30, kNaN};
  const auto count = static_cast<int64_t>(inputs.size());
  Values gate_up = inputs;
  gate_up.insert(gate_up.end(), inputs.size(), 1.0);
  for_each_isa_and_dtype([&](DType dtype) {
    for (const Activation kind : kinds_of_activation()) {
      const TestMatrix x = kind == Activation::gelu
                               ? TestMatrix(1, count, dtype).assign(inputs)
                               : TestMatrix(1, 2 * count, dtype).assign(gate_up);
      const TestMatrix dy = testing::zero_matrix(1, count, dtype).fill(1);
      TestMatrix y = poisoned_matrix(1, count, dtype);
      TestMatrix dx = poisoned_matrix(1, x.cols(), dtype);
      test_stream().ops().activation_forward(test_stream(), {kind, x, {}, y});
      test_stream().ops().activation_backward(test_stream(), {kind, x, {}, dy, dx});
      for (int64_t j = 0; j < count; ++j) {
        const double v = x.at(0, j);
        SCOPED_TRACE(v);
        if (std::isnan(v)) {
          EXPECT_TRUE(std::isnan(y.at(0, j)));
          EXPECT_TRUE(std::isnan(dx.at(0, j)));
        } else {
          EXPECT_NEAR(y.at(0, j), v > 0 ? v : 0, 1e-7 * std::max(1.0, v));
          EXPECT_NEAR(dx.at(0, j), v > 0 ? 1 : 0, 1e-7);
        }
      }
    }
  });
}

// bf16 results round to nearest even: swiglu with gate 40 (silu(40) = 40) exposes the stored bits.
TEST(Activation, RoundsBf16ToNearestEven) {
  for_each_isa([&] {
    constexpr int64_t kCount = 37;
    TestMatrix x = testing::zero_matrix(1, 2 * kCount, DType::bf16);
    for (int64_t j = 0; j < kCount; ++j) {
      x.set(0, j, 40);
      x.set(0, kCount + j, 1.0 + static_cast<double>(j) / 128);
    }
    TestMatrix y = poisoned_matrix(1, kCount, DType::bf16);
    test_stream().ops().activation_forward(test_stream(), {Activation::swiglu, x, {}, y});
    for (int64_t j = 0; j < kCount; ++j) {
      const auto exact = static_cast<float>(40 * x.at(0, kCount + j));
      EXPECT_EQ(y.at(0, j), static_cast<double>(to_f32(to_bf16(exact))));
    }
  });
}

TEST(Activation, EmptyShapesDoNothing) {
  for (const auto& [n, f] : {std::pair<int64_t, int64_t>{0, 24}, {3, 0}, {0, 0}}) {
    for (const Activation kind : kinds_of_activation()) {
      TestMatrix x = poisoned_matrix(n, input_columns(kind, f));
      TestMatrix y = poisoned_matrix(n, f);
      test_stream().ops().activation_forward(test_stream(), {kind, x, {}, y});
      test_stream().ops().activation_backward(test_stream(), {kind, x, {}, y, x});
      EXPECT_TRUE(x.outside_untouched());
      EXPECT_TRUE(y.outside_untouched());
    }
  }
}

TEST(Activation, RecordsTheOperation) {
  const TestMatrix x = random_matrix(3, 48, DType::bf16);
  const TestMatrix bias = random_vector(48, DType::bf16);
  TestMatrix y = poisoned_matrix(3, 24, DType::bf16);
  TestMatrix dx = poisoned_matrix(3, 48, DType::bf16);
  Recorder recorder;
  const auto stream = make_test_stream(1);
  stream->set_recorder(&recorder);
  stream->ops().activation_forward(*stream, {Activation::swiglu, x, bias, y});
  stream->ops().activation_backward(*stream, {Activation::swiglu, x, bias, y, dx});
  ASSERT_EQ(recorder.records().size(), 2U);
  const OpRecord& forward_record = recorder.records()[0];
  const OpRecord& backward_record = recorder.records()[1];
  EXPECT_STREQ(forward_record.op, "activation_forward");
  EXPECT_STREQ(backward_record.op, "activation_backward");
  EXPECT_EQ(forward_record.dims[0], 3);
  EXPECT_EQ(forward_record.dims[1], 24);
  EXPECT_EQ(forward_record.bytes, 3 * (48 + 24) * 2 + 48 * 2);
  EXPECT_EQ(backward_record.bytes, 3 * (48 + 24 + 48) * 2 + 48 * 2);
}

}  // namespace
}  // namespace tutti::engine
