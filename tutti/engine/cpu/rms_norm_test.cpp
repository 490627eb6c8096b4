#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine {
namespace {

using testing::close;
using testing::for_each_isa_and_dtype;
using testing::on_cpu;
using testing::poisoned_matrix;
using testing::random_matrix;
using testing::test_stream;
using testing::TestMatrix;

constexpr double kEpsilon = 1e-3;

struct Shape {
  int64_t rows, groups, width;
};
const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {{1, 1, 1},  {3, 2, 5},    {7, 3, 16}, {2, 1, 100},
                                         {70, 4, 8}, {130, 1, 67}, {0, 2, 4}};
  return all;
}

TestMatrix weights(int64_t width, DType dtype) { return random_matrix(1, width, dtype, 4); }

Vector as_vector(const TestMatrix& m) {
  const Matrix view = m;
  return vector(view.data, view.dtype, view.cols);
}

// 1 / sqrt(mean(x^2) + epsilon) of a group.
double rstd_of(const TestMatrix& x, int64_t row, int64_t first, int64_t width) {
  double squares = 0;
  for (int64_t j = 0; j < width; ++j) squares += x.at(row, first + j) * x.at(row, first + j);
  return 1 / std::sqrt(squares / static_cast<double>(width) + kEpsilon);
}

template <typename Visit>
void visit_groups(const Shape& s, const Visit& visit) {
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t g = 0; g < s.groups; ++g) visit(r, g, g * s.width);
  }
}

double rms_norm_tolerance(DType dtype) { return dtype == DType::bf16 ? 2e-2 : 2e-6; }

class RmsNorm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_cpu()) GTEST_SKIP() << "skipped: CPU-only operation";
  }
};

TEST_F(RmsNorm, NormalizesEveryGroup) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : shapes()) {
      for (const float offset : {0.0F, 1.0F}) {
        SCOPED_TRACE(fmt::format("{} rows of {} x {}", s.rows, s.groups, s.width));
        const TestMatrix x = random_matrix(s.rows, s.groups * s.width, dtype, 3, 1, 2);
        const TestMatrix w = weights(s.width, dtype);
        TestMatrix y = poisoned_matrix(s.rows, s.groups * s.width, dtype, 3);
        TestMatrix rstd = poisoned_matrix(s.rows, s.groups, DType::f32, 1);
        std::vector<double> want(static_cast<size_t>(s.rows * s.groups * s.width));
        visit_groups(s, [&](int64_t r, int64_t g, int64_t first) {
          const double scale = rstd_of(x, r, first, s.width);
          for (int64_t j = 0; j < s.width; ++j) {
            want[static_cast<size_t>(r * s.groups * s.width + first + j)] =
                x.at(r, first + j) * scale * (static_cast<double>(offset) + w.at(0, j));
          }
          (void)g;
        });
        test_stream().ops().rms_norm_forward(test_stream(), {.x = x,
                                                             .groups = s.groups,
                                                             .weight = as_vector(w),
                                                             .offset = offset,
                                                             .epsilon = kEpsilon,
                                                             .y = y,
                                                             .rstd = rstd});
        EXPECT_TRUE(close(y, want, rms_norm_tolerance(dtype)));
        visit_groups(s, [&](int64_t r, int64_t g, int64_t first) {
          EXPECT_NEAR(rstd.at(r, g), rstd_of(x, r, first, s.width), 1e-5 * rstd.at(r, g));
        });
      }
    }
  });
}

// d(sum of y * dy) by the formula.
TEST_F(RmsNorm, BackwardMatchesTheFormula) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Shape& s : shapes()) {
      for (const float beta : {0.0F, 1.0F}) {
        SCOPED_TRACE(fmt::format("{} rows of {} x {}", s.rows, s.groups, s.width));
        const int64_t columns = s.groups * s.width;
        const TestMatrix x = random_matrix(s.rows, columns, dtype, 3, 1, 2);
        const TestMatrix w = weights(s.width, dtype);
        TestMatrix dx = random_matrix(s.rows, columns, dtype, 6, 1, 1);  // dy, in place
        const TestMatrix dy = dx;
        TestMatrix rstd(s.rows, s.groups);
        TestMatrix dw = random_matrix(1, s.width, DType::f32, 7);
        std::vector<double> want_dw(static_cast<size_t>(s.width));
        for (int64_t j = 0; j < s.width; ++j) {
          want_dw[static_cast<size_t>(j)] = static_cast<double>(beta) * dw.at(0, j);
        }
        std::vector<double> want(static_cast<size_t>(s.rows * columns));
        visit_groups(s, [&](int64_t r, int64_t g, int64_t first) {
          const double scale = rstd_of(x, r, first, s.width);
          rstd.set(r, g, scale);
          double dot = 0;
          for (int64_t j = 0; j < s.width; ++j) {
            const double d = dy.at(r, first + j);
            dot += d * (1 + w.at(0, j)) * x.at(r, first + j);
            want_dw[static_cast<size_t>(j)] += d * x.at(r, first + j) * scale;
          }
          dot /= static_cast<double>(s.width);
          for (int64_t j = 0; j < s.width; ++j) {
            want[static_cast<size_t>(r * columns + first + j)] =
                scale *
                (dy.at(r, first + j) * (1 + w.at(0, j)) - x.at(r, first + j) * dot * scale * scale);
          }
        });
        test_stream().ops().rms_norm_backward(test_stream(), {.dy = dx,
                                                              .x = x,
                                                              .groups = s.groups,
                                                              .weight = as_vector(w),
                                                              .offset = 1,
                                                              .rstd = rstd,
                                                              .dx = dx,
                                                              .beta = beta,
                                                              .d_weight = as_vector(dw)});
        // With a single column the two terms cancel except for epsilon: errors are relative to one.
        if (s.width > 1) {
          EXPECT_TRUE(close(dx, want, rms_norm_tolerance(dtype)));
        } else {
          for (int64_t r = 0; r < s.rows; ++r) EXPECT_NEAR(dx.at(r, 0), want[size_t(r)], 1e-2);
        }
        EXPECT_TRUE(close(dw, want_dw, 2e-5));
      }
    }
  });
}

TEST_F(RmsNorm, SoftcapBoundsSmoothly) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const float cap : {0.5F, 30.0F}) {
      TestMatrix x = random_matrix(5, 37, dtype, 8, 2, 1);
      std::vector<double> want = x.values();
      for (double& v : want) {
        v = static_cast<double>(cap) * std::tanh(v / static_cast<double>(cap));
      }
      test_stream().ops().softcap(test_stream(), {.x = x, .cap = cap});
      EXPECT_TRUE(close(x, want, dtype == DType::bf16 ? 1e-2 : 1e-6));
    }
  });
}

}  // namespace
}  // namespace tutti::engine
