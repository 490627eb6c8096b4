#include "tutti/model/loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/base/dtype.h"
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

// Logits in bf16, as on accelerators: the relative error of each is at most 2^-8, log-sum-exp and
// the loss are f32 sums over them. So the error of a loss is at most 2^-7 of the largest logit;
// over the rows of a micro-batch these errors have no common sign.
TEST(Loss, LogitsInSixteenBitsChangeLossesByTheirRounding) {
  const int64_t rows = 200, hidden = 48, vocabulary = 3001, padded = 3008;
  const auto stream = engine::make_cpu_stream(2);
  const auto rounded = [](const std::vector<float>& x, float scale) {
    std::vector<bf16> out;
    for (const float value : x) out.push_back(to_bf16(scale * value));
    return out;
  };
  std::vector<bf16> y = rounded(normals(rows * hidden, 1), 1);
  std::vector<bf16> w = rounded(normals(padded * hidden, 2), 0.5F);
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i) targets.push_back(static_cast<int32_t>(i * 13 % vocabulary));
  struct Out {
    std::vector<float> losses, dw, highest;
    std::vector<bf16> dy;
  };
  const auto run_with = [&](DType type, int64_t chunk) {
    Out out;
    out.losses.resize(static_cast<size_t>(rows));
    out.highest.resize(static_cast<size_t>(rows));
    out.dy.resize(y.size());
    out.dw.resize(w.size());
    std::vector<char> logits(static_cast<size_t>(chunk * padded * dtype_bytes(type)));
    LossLayer layer;
    layer.vocabulary = vocabulary;
    layer.head.weight = engine::matrix(w.data(), DType::bf16, padded, hidden);
    layer.head.d_weight = engine::matrix(out.dw.data(), DType::f32, padded, hidden);
    const LossWork work = {engine::matrix(logits.data(), type, chunk, padded),
                           engine::vector(out.losses.data(), DType::f32, rows)};
    const engine::Matrix input = engine::matrix(y.data(), DType::bf16, rows, hidden);
    const engine::Vector wanted = engine::vector(targets.data(), DType::i32, rows);
    if (type == DType::f32) {  // forward leaves all logits
      loss_forward(*stream, layer, input, wanted, work);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < vocabulary; ++j) {
          const float x = std::abs(work.logits.row<float>(r)[j]);
          float& highest = out.highest[static_cast<size_t>(r)];
          highest = std::max(highest, x);
        }
      }
    }
    loss_forward_backward(*stream, layer, input, wanted, 1.0F / rows, work,
                          engine::matrix(out.dy.data(), DType::bf16, rows, hidden), 0);
    return out;
  };
  const Out wide = run_with(DType::f32, rows);
  const auto relative = [](double apart, double whole) { return std::sqrt(apart / whole); };
  for (const int64_t chunk : {rows, int64_t{64}}) {
    const Out narrow = run_with(DType::bf16, chunk);
    double sum = 0, wide_sum = 0;
    for (size_t r = 0; r < wide.losses.size(); ++r) {
      EXPECT_NEAR(narrow.losses[r], wide.losses[r], wide.highest[r] / 128);
      sum += narrow.losses[r];
      wide_sum += wide.losses[r];
    }
    EXPECT_NE(narrow.losses, wide.losses);
    EXPECT_NEAR(sum / wide_sum, 1, 5e-4);
    double apart = 0, whole = 0;
    for (size_t i = 0; i < wide.dw.size(); ++i) {
      apart += std::pow(narrow.dw[i] - wide.dw[i], 2);
      whole += std::pow(wide.dw[i], 2);
    }
    EXPECT_LE(relative(apart, whole), 2e-2);
    apart = whole = 0;
    for (size_t i = 0; i < wide.dy.size(); ++i) {
      apart += std::pow(to_f32(narrow.dy[i]) - to_f32(wide.dy[i]), 2);
      whole += std::pow(to_f32(wide.dy[i]), 2);
    }
    EXPECT_LE(relative(apart, whole), 2e-2);
  }
}

}  // namespace
}  // namespace tutti::model
