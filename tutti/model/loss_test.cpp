#include "tutti/model/loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tutti/base/rng.h"

namespace tutti::model {
namespace {

std::vector<float> normals(int64_t count, uint64_t key) {
  std::vector<float> out(static_cast<size_t>(count));
  fill_normal(out.data(), count, key, 0, 0, 1);
  return out;
}

// Loss and gradients of one head over N rows in chunks of C, in f32.
struct Result {
  std::vector<float> losses, dy, dw;
};

Result run(int64_t rows, int64_t chunk, int64_t hidden, int64_t vocabulary, int64_t padded) {
  const auto stream = engine::make_cpu_stream(2);
  std::vector<float> y = normals(rows * hidden, 1);
  std::vector<float> w = normals(padded * hidden, 2);
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i) {
    targets.push_back(i % 7 == 3 ? -1 : static_cast<int32_t>(i * 13 % vocabulary));
  }
  const float nan = std::nanf("");
  Result out;
  out.losses.assign(static_cast<size_t>(rows), nan);
  out.dy.assign(y.size(), nan);
  out.dw.assign(w.size(), nan);
  std::vector<float> logits(static_cast<size_t>(chunk * padded), nan);

  LossLayer layer;
  layer.vocabulary = vocabulary;
  layer.head.weight = engine::matrix(w.data(), DType::f32, padded, hidden);
  layer.head.d_weight = engine::matrix(out.dw.data(), DType::f32, padded, hidden);
  const LossWork work = {engine::matrix(logits.data(), DType::f32, chunk, padded),
                         engine::vector(out.losses.data(), DType::f32, rows)};
  loss_forward_backward(*stream, layer, engine::matrix(y.data(), DType::f32, rows, hidden),
                        engine::vector(targets.data(), DType::i32, rows), 0.25F, work,
                        engine::matrix(out.dy.data(), DType::f32, rows, hidden), 0);
  return out;
}

TEST(Loss, ChunksDoNotChangeTheResult) {
  const Result whole = run(21, 21, 24, 101, 128);
  for (const int64_t chunk : {1, 4, 20}) {
    const Result chunked = run(21, chunk, 24, 101, 128);
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(chunked.losses[i], whole.losses[i], 2e-5F * (1 + std::abs(whole.losses[i])));
    }
    for (size_t i = 0; i < whole.dy.size(); ++i) EXPECT_NEAR(chunked.dy[i], whole.dy[i], 1e-5F);
    for (size_t i = 0; i < whole.dw.size(); ++i) EXPECT_NEAR(chunked.dw[i], whole.dw[i], 1e-5F);
  }
}

TEST(Loss, IgnoredRowsAndPaddedVocabularyHaveNoGradient) {
  const Result result = run(21, 8, 24, 101, 128);
  for (int64_t row = 0; row < 21; ++row) {
    if (row % 7 != 3) continue;
    EXPECT_EQ(result.losses[static_cast<size_t>(row)], 0.0F);
    for (int64_t j = 0; j < 24; ++j) {
      EXPECT_EQ(result.dy[static_cast<size_t>(row * 24 + j)], 0.0F);
    }
  }
  for (size_t i = 101 * 24; i < result.dw.size(); ++i) EXPECT_EQ(result.dw[i], 0.0F);
}

}  // namespace
}  // namespace tutti::model
