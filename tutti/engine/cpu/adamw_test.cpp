#include <gtest/gtest.h>

#include <cmath>

#include "tutti/engine/reference.h"
#include "tutti/engine/test_support.h"

namespace tutti::engine::testing {
namespace {

constexpr float kRate = 0.01F;
constexpr float kClip = 0.5F;

std::vector<AdamwSegment> segments_of(int64_t count) {
  const int64_t a = count / 3;
  const int64_t b = count / 2;
  return {{0, a, 0.1F}, {a, b - a, 0}, {b, 0, 7}, {b, count - b, 0.3F}};
}

TEST(Adamw, FollowsTheReferenceOverSteps) {
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
  const auto one = make_cpu_stream(1);
  EXPECT_TRUE(run(*one).same_bytes(run(test_stream())));
}

TEST(AdamwDeathTest, SegmentsMustCoverTheRange) {
  const TestMatrix x = zero_vector(8);
  const AdamwSegment part{0, 7, 0};
  const AdamwArgs args{.gradient = x, .master = x, .m = x, .v = x, .segments = {&part, 1}};
  EXPECT_DEATH(test_stream().ops().adamw(test_stream(), args), "segments cover 7 of 8");
}

}  // namespace
}  // namespace tutti::engine::testing
