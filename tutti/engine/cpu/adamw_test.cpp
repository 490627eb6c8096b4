#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

constexpr float kRate = 0.01F;
constexpr float kClip = 0.5F;

std::vector<AdamwSegment> segments_of(int64_t count) {
  const int64_t a = count / 3;
  const int64_t b = count / 2;
  return {{0, a, 0.1F}, {a, b - a, 0}, {b, 0, 7}, {b, count - b, 0.3F}};
}

TEST(Adamw, MatchesTheReferenceOverSteps) {
  for_each_isa([] {
    for (const int64_t count : {0, 1, 3, 101, 9001}) {
      SCOPED_TRACE(count);
      const auto segments = segments_of(count);
      std::vector<double> decay;
      for (const auto& s : segments) {
        decay.insert(decay.end(), static_cast<size_t>(s.count),
                     static_cast<double>(s.weight_decay));
      }
      TestMatrix master = random_vector(count, DType::f32, 1);
      TestMatrix m = zero_vector(count);
      TestMatrix v = zero_vector(count);
      TestMatrix weights = poisoned_vector(count, DType::bf16);
      reference::AdamwState state{master.values(), m.values(), v.values()};
      for (int64_t step = 1; step <= 5; ++step) {
        const TestMatrix gradient =
            random_vector(count, DType::f32, static_cast<uint64_t>(10 + step), 0.1);
        AdamwArgs args;
        args.gradient = gradient;
        args.master = master;
        args.m = m;
        args.v = v;
        if (step % 2 == 1) args.weights = weights;
        args.segments = segments;
        args.learning_rate = kRate;
        args.clip = kClip;
        args.step = step;
        test_stream().ops().adamw(test_stream(), args);
        reference::adamw(state, gradient.values(), decay, static_cast<double>(kRate),
                         static_cast<double>(args.beta1), static_cast<double>(args.beta2),
                         static_cast<double>(args.epsilon), static_cast<double>(kClip), step);
        EXPECT_TRUE(close(master, state.master, 2e-6));
        EXPECT_TRUE(close(m, state.m, 2e-6));
        EXPECT_TRUE(close(v, state.v, 2e-6));
      }
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(weights.at(0, i),
                  static_cast<double>(to_f32(to_bf16(static_cast<float>(master.at(0, i))))));
      }
    }
  });
}

TEST(Adamw, FirstStepMovesByTheLearningRate) {
  // With zero moments m / bias1 = g and sqrt(v / bias2) = |g|, so p moves by lr * sign(g).
  TestMatrix master = TestMatrix(1, 2).assign({1, 1});
  const TestMatrix gradient = TestMatrix(1, 2).assign({1e-3, -100});
  TestMatrix m = zero_vector(2);
  TestMatrix v = zero_vector(2);
  const AdamwSegment whole{0, 2, 0};
  AdamwArgs args{.gradient = gradient, .master = master, .m = m, .v = v, .segments = {&whole, 1}};
  args.learning_rate = 0.125F;
  test_stream().ops().adamw(test_stream(), args);
  EXPECT_TRUE(close(master, {0.875, 1.125}, 2e-5));
}

TEST(Adamw, DoesNotDependOnThreads) {
  const int64_t count = 20011;
  const auto segments = segments_of(count);
  const TestMatrix gradient = random_vector(count, DType::f32, 9);
  const auto run = [&](Stream& stream) {
    TestMatrix master = random_vector(count, DType::f32, 1);
    TestMatrix m = zero_vector(count);
    TestMatrix v = zero_vector(count);
    AdamwArgs args{.gradient = gradient, .master = master, .m = m, .v = v, .segments = segments};
    args.learning_rate = kRate;
    stream.ops().adamw(stream, args);
    return master;
  };
  const auto one = make_test_stream(1);
  EXPECT_TRUE(run(*one).same_bytes(run(test_stream())));
}

// The sum of the words of f32 or bf16 values, modulo 2^32.
uint32_t word_sum(const TestMatrix& values, DType dtype) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < values.cols(); ++i) {
    const auto value = static_cast<float>(values.at(0, i));
    sum += dtype == DType::f32 ? std::bit_cast<uint32_t>(value) : uint32_t{to_bf16(value).bits};
  }
  return sum;
}

TEST(Adamw, ChecksumsCoverInputsAndOutputs) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: CPU only";
  for_each_isa([] {
    for (const int64_t count : {0, 1, 3, 101, 20011}) {
      SCOPED_TRACE(count);
      for (const bool mixed : {false, true}) {
        const auto segments = segments_of(count);
        const TestMatrix gradient = random_vector(count, DType::f32, 9);
        TestMatrix master = random_vector(count, DType::f32, 1);
        TestMatrix m = random_vector(count, DType::f32, 2);
        TestMatrix v = zero_vector(count);
        TestMatrix weights = random_vector(count, DType::bf16, 3);
        const auto sums_now = [&] {
          return AdamwSums::Arrays{word_sum(master, DType::f32), word_sum(m, DType::f32),
                                   word_sum(v, DType::f32),
                                   mixed ? word_sum(weights, DType::bf16) : 0};
        };
        AdamwArgs args{
            .gradient = gradient, .master = master, .m = m, .v = v, .segments = segments};
        if (mixed) args.weights = weights;
        args.learning_rate = kRate;
        AdamwSums sums;
        args.sums = &sums;
        const AdamwSums::Arrays before = sums_now();
        test_stream().ops().adamw(test_stream(), args);
        EXPECT_EQ(sums.before, before);
        EXPECT_EQ(sums.after, sums_now());
        // The same update without checksums.
        TestMatrix plain = random_vector(count, DType::f32, 1);
        TestMatrix plain_m = random_vector(count, DType::f32, 2);
        TestMatrix plain_v = zero_vector(count);
        AdamwArgs other = args;
        other.master = plain;
        other.m = plain_m;
        other.v = plain_v;
        other.sums = nullptr;
        test_stream().ops().adamw(test_stream(), other);
        EXPECT_TRUE(plain.same_bytes(master));
      }
    }
  });
}

// ---- bf16 masters -------------------------------------------------------------------------------

constexpr uint64_t kAdamKey = 0x1234567890abcdefU;

// Parameters and moments of one update. With f32 masters it gives the exact result before rounding.
struct Bare {
  TestMatrix master, m, v;
  explicit Bare(int64_t count, DType dtype)
      : master(random_vector(count, DType::bf16, 1)),
        m(random_vector(count, DType::f32, 2, 0.1)),
        v(zero_vector(count).fill(0.01)) {
    if (dtype == DType::bf16) return;
    TestMatrix wide(1, count);
    master = wide.assign(master.values());
  }
  void step(const TestMatrix& gradient, std::span<const AdamwSegment> segments, bool stochastic,
            int64_t step, Stream& stream = test_stream()) {
    AdamwArgs args{.gradient = gradient, .master = master, .m = m, .v = v, .segments = segments};
    args.learning_rate = kRate;
    args.clip = kClip;
    args.step = step;
    args.stochastic = stochastic;
    stream.ops().adamw(stream, args);
    stream.synchronize();
  }
};

// Element e of a tensor by the rule in update_ops.h.
float rounded(double exact, uint64_t key, int64_t e, int64_t step) {
  const auto random =
      philox(key, static_cast<uint64_t>(e / 8), static_cast<uint64_t>(step))[e % 8 / 2];
  const uint32_t half = e % 2 == 0 ? random & 0xffffU : random >> 16;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(exact));
  return std::bit_cast<float>((bits + half) & 0xffff0000U);
}

TEST(Adamw, Bf16MastersEqualTheRoundedExactStep) {
  for_each_isa([] {
    for (const int64_t count : {0, 1, 3, 101, 9001}) {
      SCOPED_TRACE(count);
      auto segments = segments_of(count);
      for (AdamwSegment& segment : segments) {
        segment.numbers = {kAdamKey + static_cast<uint64_t>(segment.first), 3, 5, 17, 2};
      }
      const TestMatrix gradient = random_vector(count, DType::f32, 9, 0.1);
      Bare exact(count, DType::f32), nearest(count, DType::bf16), random(count, DType::bf16);
      exact.step(gradient, segments, false, 7);
      nearest.step(gradient, segments, false, 7);
      random.step(gradient, segments, true, 7);
      EXPECT_TRUE(nearest.m.same_bytes(exact.m) && random.m.same_bytes(exact.m));
      EXPECT_TRUE(nearest.v.same_bytes(exact.v) && random.v.same_bytes(exact.v));
      for (const AdamwSegment& segment : segments) {
        for (int64_t i = 0; i < segment.count; ++i) {
          const double value = exact.master.at(0, segment.first + i);
          ASSERT_EQ(nearest.master.at(0, segment.first + i),
                    static_cast<double>(to_f32(to_bf16(static_cast<float>(value)))));
          const int64_t element = 3 + (i + 2) / 5 * 17 + (i + 2) % 5;
          ASSERT_EQ(random.master.at(0, segment.first + i),
                    static_cast<double>(rounded(value, segment.numbers.key, element, 7)))
              << i;
        }
      }
    }
  });
}

// With any segments and any number of threads: rounding depends on element numbers only.
TEST(Adamw, RoundingDoesNotDependOnSegmentation) {
  const int64_t count = 20011;
  const TestMatrix gradient = random_vector(count, DType::f32, 9, 0.1);
  Bare whole(count, DType::bf16), cut(count, DType::bf16), alone(count, DType::bf16);
  const AdamwSegment one{0, count, 0.1F, {kAdamKey, 0, count, count, 0}};
  std::vector<AdamwSegment> pieces;
  for (int64_t first = 0, size = 1; first < count; first += size, size += 7) {
    const int64_t length = std::min(size, count - first);
    pieces.push_back({first, length, 0.1F, {kAdamKey, 0, count, count, first}});
  }
  whole.step(gradient, {&one, 1}, true, 3);
  cut.step(gradient, pieces, true, 3);
  EXPECT_TRUE(whole.master.same_bytes(cut.master));
  const auto thread = make_test_stream(1);
  alone.step(gradient, {&one, 1}, true, 3, *thread);
  EXPECT_TRUE(whole.master.same_bytes(alone.master));
}

// Steps of a sixteenth of the distance between neighbours: rounding to nearest loses them,
// stochastic rounding preserves their mean.
TEST(Adamw, StochasticRoundingIsUnbiased) {
  const int64_t count = 4000;
  const TestMatrix gradient = zero_vector(count).fill(1);
  const AdamwSegment one{0, count, 0, {kAdamKey, 0, count, count, 0}};
  for (const bool stochastic : {false, true}) {
    TestMatrix master = TestMatrix(1, count, DType::bf16).fill(1.5);
    TestMatrix m = zero_vector(count).fill(1);
    TestMatrix v = zero_vector(count).fill(1);
    AdamwArgs args{.gradient = gradient, .master = master, .m = m, .v = v, .segments = {&one, 1}};
    args.beta1 = args.beta2 = 0;  // a step is the learning rate
    args.learning_rate = 0x1p-11F;
    args.stochastic = stochastic;
    constexpr int64_t kSteps = 64;
    for (args.step = 1; args.step <= kSteps; ++args.step) {
      test_stream().ops().adamw(test_stream(), args);
    }
    test_stream().synchronize();
    double mean = 0;
    for (const double value : master.values()) mean += value / static_cast<double>(count);
    // A walk of 64 steps of 2^-7 with probability 1/16 has a standard deviation of 2^-7 * sqrt(64 *
    // 15 / 256); that of the mean of 4,000 of them is 2.4e-4.
    if (stochastic) {
      EXPECT_NEAR(mean, 1.5 - kSteps * 0x1p-11, 1e-3);
    } else {
      EXPECT_NEAR(mean, 1.5, 1e-12);
    }
  }
}

TEST(Adamw, ChecksumsOfBf16Masters) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: CPU only";
  for_each_isa([] {
    for (const bool stochastic : {false, true}) {
      for (const int64_t count : {1, 101, 20011}) {
        const AdamwSegment one{0, count, 0.1F, {kAdamKey, 0, count, count, 0}};
        const TestMatrix gradient = random_vector(count, DType::f32, 9, 0.1);
        Bare state(count, DType::bf16);
        const auto sums_now = [&] {
          return AdamwSums::Arrays{word_sum(state.master, DType::bf16),
                                   word_sum(state.m, DType::f32), word_sum(state.v, DType::f32), 0};
        };
        AdamwSums sums;
        AdamwArgs args{.gradient = gradient,
                       .master = state.master,
                       .m = state.m,
                       .v = state.v,
                       .segments = {&one, 1}};
        args.learning_rate = kRate;
        args.stochastic = stochastic;
        args.sums = &sums;
        const AdamwSums::Arrays before = sums_now();
        test_stream().ops().adamw(test_stream(), args);
        EXPECT_EQ(sums.before, before);
        EXPECT_EQ(sums.after, sums_now());
      }
    }
  });
}

TEST(AdamwDeathTest, SegmentsMustCoverTheRange) {
  const TestMatrix x = zero_vector(8);
  const AdamwSegment part{0, 7, 0};
  const AdamwArgs args{.gradient = x, .master = x, .m = x, .v = x, .segments = {&part, 1}};
  EXPECT_DEATH(test_stream().ops().adamw(test_stream(), args), "segments cover 7 of 8");
}

}  // namespace
}  // namespace tutti::engine::testing
