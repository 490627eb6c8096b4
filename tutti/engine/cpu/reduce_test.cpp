#include "tutti/engine/cpu/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

const std::vector<int64_t> kCounts = {0, 1, 3, 15, 16, 17, 63, 64, 65, 257, 1031};

// Sums in the accumulation type and in the order of the sources, rounded once.
double reference(Reduce reduce, const std::vector<TestMatrix>& sources, int64_t i) {
  float sum = static_cast<float>(sources[0].at(0, i));
  for (size_t s = 1; s < sources.size(); ++s) {
    const auto x = static_cast<float>(sources[s].at(0, i));
    sum = reduce == Reduce::sum ? sum + x : std::max(sum, x);
  }
  if (sources[0].view().dtype == DType::bf16) sum = to_f32(to_bf16(sum));
  return static_cast<double>(sum);
}

void run(Reduce reduce, const std::vector<TestMatrix>& sources,
         const std::vector<TestMatrix*>& destinations) {
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const TestMatrix& source : sources) from.push_back(source.view().data);
  for (TestMatrix* destination : destinations) to.push_back(destination->view().data);
  reduce_elements(reduce, sources[0].view().dtype, from, to, sources[0].cols());
}

TEST(Reduce, EqualsAPlainLoopBitwise) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const Reduce reduce : {Reduce::sum, Reduce::max}) {
      for (const int64_t count : kCounts) {
        for (const size_t ranks : {1U, 2U, 3U, 9U}) {
          std::vector<TestMatrix> sources;
          for (size_t s = 0; s < ranks; ++s) sources.push_back(random_vector(count, dtype, s + 1));
          TestMatrix one(1, count, dtype);
          TestMatrix two(1, count, dtype);
          run(reduce, sources, {&one, &two});
          for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(one.at(0, i), reference(reduce, sources, i));
          }
          EXPECT_TRUE(one.outside_untouched());
          EXPECT_TRUE(one.same_bytes(two));
        }
      }
    }
  });
}

TEST(Reduce, InPlaceIntoAllSources) {
  for_each_isa_and_dtype([](DType dtype) {
    std::vector<TestMatrix> sources;
    for (uint64_t s = 0; s < 3; ++s) sources.push_back(random_vector(101, dtype, s + 1));
    TestMatrix expected(1, 101, dtype);
    run(Reduce::sum, sources, {&expected});
    run(Reduce::sum, sources, {&sources[0], &sources[1], &sources[2]});
    for (const TestMatrix& source : sources) EXPECT_TRUE(source.same_bytes(expected));
  });
}

TEST(Reduce, MaximumPropagatesNan) {
  for_each_isa_and_dtype([](DType dtype) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<TestMatrix> sources = {TestMatrix(1, 4, dtype).assign({nan, 1, -1, 4}),
                                             TestMatrix(1, 4, dtype).assign({1, nan, -2, 5}),
                                             TestMatrix(1, 4, dtype).assign({2, 3, -3, 3})};
    TestMatrix out(1, 4, dtype);
    run(Reduce::max, sources, {&out});
    EXPECT_TRUE(std::isnan(out.at(0, 0)));
    EXPECT_TRUE(std::isnan(out.at(0, 1)));
    EXPECT_EQ(out.at(0, 2), -1);
    EXPECT_EQ(out.at(0, 3), 5);
  });
}

template <typename T>
void check_integers(DType dtype) {
  const T most = std::numeric_limits<T>::max();
  const std::vector<T> a = {1, most, -5, 0, 7};
  const std::vector<T> b = {2, 1, -6, most, -7};
  std::vector<T> sum(5);
  std::vector<T> max(5);
  const std::vector<const void*> sources = {a.data(), b.data()};
  const std::vector<void*> to_sum = {sum.data()};
  const std::vector<void*> to_max = {max.data()};
  reduce_elements(Reduce::sum, dtype, sources, to_sum, 5);
  reduce_elements(Reduce::max, dtype, sources, to_max, 5);
  EXPECT_EQ(sum, (std::vector<T>{3, std::numeric_limits<T>::min(), -11, most, 0}));
  EXPECT_EQ(max, (std::vector<T>{2, most, -5, most, 7}));
}

TEST(Reduce, IntegersWrapAround) {
  check_integers<int32_t>(DType::i32);
  check_integers<int64_t>(DType::i64);
}

}  // namespace
}  // namespace tutti::engine::testing
