#include <gtest/gtest.h>

#include <utility>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

TEST(Copy, ConvertsAndAddsRowByRow) {
  for_each_isa([] {
    for (const DType from : {DType::f32, DType::bf16}) {
      for (const DType to : {DType::f32, DType::bf16}) {
        for (const int64_t n : {0, 1, 3, 65}) {
          for (const int64_t m : {0, 1, 24, 101}) {
            const TestMatrix x = random_matrix(n, m, from, 1, 1, 3);
            const TestMatrix plus = random_matrix(n, m, DType::f32, 2, 1, 1);
            for (const bool adds : {false, true}) {
              TestMatrix out = poisoned_matrix(n, m, to, 5);
              test_stream().ops().copy(test_stream(),
                                       {.x = x, .plus = adds ? plus.view() : Matrix{}, .out = out});
              TestMatrix expected(n, m, to, 5);
              for (int64_t r = 0; r < n; ++r) {
                for (int64_t c = 0; c < m; ++c) {
                  const auto left = static_cast<float>(x.at(r, c));
                  const auto right = static_cast<float>(plus.at(r, c));
                  expected.set(r, c, static_cast<double>(adds ? left + right : left));
                }
              }
              EXPECT_TRUE(out.same_bytes(expected)) << n << " x " << m;
            }
          }
        }
      }
    }
  });
}

TEST(Copy, Scales) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: factors are CPU only";
  for (const DType from : {DType::f32, DType::bf16}) {
    for (const DType to : {DType::f32, DType::bf16}) {
      for (const auto& [n, m] : {std::pair<int64_t, int64_t>{0, 5}, {1, 1}, {3, 24}, {65, 101}}) {
        TestMatrix x = random_matrix(n, m, from, 1, 1, 3);
        TestMatrix expected(n, m, to, 5);
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t c = 0; c < m; ++c) {
            expected.set(r, c, static_cast<double>(0.22F * static_cast<float>(x.at(r, c))));
          }
        }
        TestMatrix out = poisoned_matrix(n, m, to, 5);
        test_stream().ops().copy(test_stream(), {.x = x, .out = out, .scale = 0.22F});
        EXPECT_TRUE(out.same_bytes(expected)) << n << " x " << m;
        if (from != to) continue;
        test_stream().ops().copy(test_stream(), {.x = x, .out = x, .scale = 0.22F});
        EXPECT_EQ(x.values(), expected.values());
      }
    }
  }
}

TEST(Copy, AddsInPlace) {
  TestMatrix x = random_matrix(7, 33);
  const TestMatrix before = x;
  const TestMatrix plus = random_matrix(7, 33, DType::f32, 2);
  test_stream().ops().copy(test_stream(), {.x = x, .plus = plus, .out = x});
  for (int64_t c = 0; c < 33; ++c) {
    EXPECT_EQ(x.at(3, c), static_cast<double>(static_cast<float>(before.at(3, c)) +
                                              static_cast<float>(plus.at(3, c))));
  }
}

}  // namespace
}  // namespace tutti::engine::testing
