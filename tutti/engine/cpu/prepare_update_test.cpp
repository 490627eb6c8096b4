#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tutti/engine/testing/test_support.h"
#include "tutti/engine/update_scalars.h"

namespace tutti::engine::testing {
namespace {

struct Prepared {
  UpdateScalars scalars;
  StepOutputs outputs;
  double updates = 0;
};

Prepared prepare(double loss_sum, double squared_norm, const StepInputs& inputs, double updates,
                 double clip_norm) {
  TestValue<double> loss(loss_sum);
  TestValue<double> square(squared_norm);
  TestValue<double> targets(inputs.targets);
  TestValue<StepInputs> in(inputs);
  TestValue<double> applied(updates);
  TestValue<UpdateScalars> scalars;
  TestValue<StepOutputs> outputs;
  test_stream().ops().prepare_update(test_stream(), {.loss_sum = loss.data(),
                                                     .squared_norm = square.data(),
                                                     .targets = targets.data(),
                                                     .inputs = in.data(),
                                                     .clip_norm = clip_norm,
                                                     .beta1 = 0.9F,
                                                     .beta2 = 0.95F,
                                                     .updates = applied.data(),
                                                     .scalars = scalars.data(),
                                                     .outputs = outputs.data()});
  return {scalars.value(), outputs.value(), applied.value()};
}

TEST(ClipFactor, ScalesTheNormDownToTheLimit) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_factor(1e9, 0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0) * 4.0, 1.0, 1e-6);
}

TEST(PrepareUpdate, FollowsItsEquations) {
  for (const double clip_norm : {0.0, 0.5, 100.0}) {
    const Prepared p = prepare(90, 4, {3e-4, 60, 45}, 6, clip_norm);
    const double norm = 60.0 / 45 * 2;
    EXPECT_DOUBLE_EQ(p.outputs.loss, 2);
    EXPECT_DOUBLE_EQ(p.outputs.gradient_norm, norm);
    EXPECT_EQ(p.outputs.applied, 1);
    EXPECT_EQ(p.outputs.nonfinite, -1);
    EXPECT_EQ(p.outputs.targets, 45);
    EXPECT_EQ(p.updates, 7);
    const double limit = clip_norm == 0 ? 1 : std::min(1.0, clip_norm / (norm + 1e-6));
    EXPECT_FLOAT_EQ(p.scalars.clip, static_cast<float>(60.0 / 45 * limit));
    EXPECT_FLOAT_EQ(p.scalars.learning_rate, 3e-4F);
    EXPECT_FLOAT_EQ(p.scalars.step_size,
                    static_cast<float>(double{3e-4F} / (1 - std::pow(double{0.9F}, 7))));
    EXPECT_FLOAT_EQ(p.scalars.inverse_root,
                    static_cast<float>(1 / std::sqrt(1 - std::pow(double{0.95F}, 7))));
    EXPECT_EQ(p.scalars.apply, 1);
  }
}

TEST(PrepareUpdate, MixesTheDistillationLoss) {
  TestValue<double> loss(90), divergence(18), square(4), targets(45), updates(0);
  TestValue<StepInputs> in({3e-4, 60, 45});
  for (const double weight : {0.0, 0.25, 1.0}) {
    for (const double shown : {18.0, std::nan("")}) {
      *divergence.data() = shown;
      TestValue<UpdateScalars> scalars;
      TestValue<StepOutputs> outputs;
      test_stream().ops().prepare_update(test_stream(), {.loss_sum = loss.data(),
                                                         .divergence_sum = divergence.data(),
                                                         .divergence_weight = weight,
                                                         .squared_norm = square.data(),
                                                         .targets = targets.data(),
                                                         .inputs = in.data(),
                                                         .updates = updates.data(),
                                                         .scalars = scalars.data(),
                                                         .outputs = outputs.data()});
      test_stream().synchronize();
      EXPECT_DOUBLE_EQ(outputs.value().cross_entropy, 2);
      EXPECT_EQ(outputs.value().applied, std::isfinite(shown) ? 1 : 0);
      if (!std::isfinite(shown)) continue;
      EXPECT_DOUBLE_EQ(outputs.value().divergence, 0.4);
      EXPECT_DOUBLE_EQ(outputs.value().loss, mixed_loss(2, 0.4, weight));
    }
  }
}

TEST(PrepareUpdate, NonFiniteSumsAreNotApplied) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(prepare(infinite, 1, {1e-3, 1, 1}, 0, 1).scalars.apply, 0);
  EXPECT_EQ(prepare(1, infinite, {1e-3, 1, 1}, 0, 1).scalars.apply, 0);
  const Prepared skipped = prepare(1, std::nan(""), {1e-3, 1, 1}, 4, 0);
  EXPECT_EQ(skipped.outputs.applied, 0);
  EXPECT_EQ(skipped.updates, 4);
}

TEST(PrepareUpdate, WithoutTargetsTheUpdateIsNotApplied) {
  const Prepared p = prepare(0, 1, {1e-3, 6, 0}, 4, 1);
  EXPECT_EQ(p.scalars.apply, 0);
  EXPECT_EQ(p.updates, 4);
  EXPECT_EQ(p.outputs.targets, 0);
}

// Large values make the result depend on the order of the sum.
TEST(AddRows, AddsInTheOrderOfTheRows) {
  for (const int64_t width : {1, 4, 5, 300}) {
    for (const int64_t rows : {0, 1, 2, 7, 33}) {
      std::vector<double> values, expected(static_cast<size_t>(width), 0.0);
      for (int64_t i = 0; i < rows * width; ++i) {
        values.push_back(i % 3 == 0 ? 1e16 : 1.0 / static_cast<double>(i));
        expected[static_cast<size_t>(i % width)] += values.back();
      }
      TestMatrix x(1, rows * width + 1, DType::i64), total(1, width, DType::i64);
      if (!values.empty()) {
        std::memcpy(x.view().data, values.data(), values.size() * sizeof(double));
      }
      test_stream().ops().add_rows(test_stream(),
                                   {.x = static_cast<double*>(x.view().data),
                                    .rows = rows,
                                    .width = width,
                                    .total = static_cast<double*>(total.view().data)});
      test_stream().synchronize();
      EXPECT_EQ(std::memcmp(total.view().data, expected.data(), expected.size() * sizeof(double)),
                0)
          << rows << " x " << width;
    }
  }
}

TEST(FindNonfinite, FindsTheLastNonfiniteSegment) {
  const float infinite = std::numeric_limits<float>::infinity();
  const int64_t n = 70001;
  TestMatrix ends(1, 4, DType::i64);
  const int64_t at[] = {1, 400, 69000, 70000};
  std::memcpy(ends.view().data, at, sizeof at);
  const auto find = [&](const std::vector<std::pair<int64_t, float>>& bad, float apply,
                        int64_t first = 0, int64_t before = -1) {
    TestMatrix x = random_vector(n);
    for (const auto& [i, value] : bad) x.view().row<float>(0)[i] = value;
    UpdateScalars update = {};
    update.apply = apply;
    TestValue<UpdateScalars> scalars(update);
    TestValue<int64_t> found(before);
    test_stream().ops().find_nonfinite(
        test_stream(),
        {.x = x, .ends = ends, .first = first, .scalars = scalars.data(), .found = found.data()});
    test_stream().synchronize();
    return found.value();
  };
  EXPECT_EQ(find({}, 0), -1);
  EXPECT_EQ(find({{0, infinite}}, 0), 0);
  EXPECT_EQ(find({{1, std::nanf("")}, {0, infinite}}, 0), 1);
  EXPECT_EQ(find({{399, infinite}, {400, infinite}}, 0), 2);
  EXPECT_EQ(find({{69999, -infinite}, {3, infinite}}, 0), 3);
  EXPECT_EQ(find({{70000, infinite}}, 0), -1);  // after the last segment
  EXPECT_EQ(find({{69999, infinite}}, 1), -1);  // the update applies: no search
  EXPECT_EQ(find({{400, infinite}}, 0, 10), 12);
  EXPECT_EQ(find({{400, infinite}}, 0, 10, 11), 12);
  EXPECT_EQ(find({{400, infinite}}, 0, 10, 13), 13);  // an earlier call found a later tensor
}

TEST(Adamw, ScalarsInMemoryEqualArguments) {
  const int64_t n = 1001;
  const TestMatrix gradient = random_vector(n);
  const AdamwSegment segments[] = {{0, 500, 0.1F}, {500, n - 500, 0}};
  TestMatrix master[2] = {random_vector(n, DType::f32, 2), random_vector(n, DType::f32, 2)};
  TestMatrix m[2] = {random_vector(n, DType::f32, 3), random_vector(n, DType::f32, 3)};
  TestMatrix v[2] = {zero_vector(n).fill(0.5), zero_vector(n).fill(0.5)};
  TestValue<double> loss(9);
  TestValue<double> square(4);
  TestValue<double> targets(8);
  TestValue<StepInputs> in({3e-4, 8, 8});
  TestValue<double> updates(4);
  TestValue<UpdateScalars> scalars;
  TestValue<StepOutputs> outputs;
  test_stream().ops().prepare_update(test_stream(), {.loss_sum = loss.data(),
                                                     .squared_norm = square.data(),
                                                     .targets = targets.data(),
                                                     .inputs = in.data(),
                                                     .clip_norm = 0,
                                                     .updates = updates.data(),
                                                     .scalars = scalars.data(),
                                                     .outputs = outputs.data()});
  for (int i = 0; i < 2; ++i) {
    AdamwArgs args = {
        .gradient = gradient, .master = master[i], .m = m[i], .v = v[i], .segments = segments};
    args.learning_rate = 3e-4F;
    args.step = 5;
    if (i == 1) {
      args.learning_rate = std::nanf("");
      args.scalars = scalars.data();
    }
    test_stream().ops().adamw(test_stream(), args);
  }
  EXPECT_TRUE(master[0].same_bytes(master[1]));
  EXPECT_TRUE(m[0].same_bytes(m[1]));
  EXPECT_TRUE(v[0].same_bytes(v[1]));

  UpdateScalars skip = scalars.value();
  skip.apply = 0;
  TestValue<UpdateScalars> skipped(skip);
  const TestMatrix before = master[0];
  AdamwArgs args = {
      .gradient = gradient, .master = master[0], .m = m[0], .v = v[0], .segments = segments};
  args.scalars = skipped.data();
  test_stream().ops().adamw(test_stream(), args);
  EXPECT_TRUE(master[0].same_bytes(before));
}

}  // namespace
}  // namespace tutti::engine::testing
