// What quantized weights cost a trained model: perplexity as generation computes it, on tokens that
// the model has not seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/endpoint/testing/served_model.h"
#include "tutti/model/paged_decode.h"
#include "tutti/train/testing/chain_batches.h"

namespace tutti::endpoint {
namespace {

constexpr int64_t kWindow = 24;  // rows of one pass of few rows, as decoding has
constexpr int64_t kWindows = 100;

spec::Recipe chain_recipe() {
  spec::Recipe recipe = train::testing::llama_recipe();
  recipe.model.vocabulary = 32;
  recipe.model.context = 32;
  recipe.model.hidden = 64;
  recipe.model.heads = recipe.model.kv_heads = 4;
  recipe.model.head_dim = 16;
  recipe.model.ffn = 160;
  recipe.batch = {8, 8, 32};
  recipe.precision = spec::Precision::bf16;
  return recipe;
}

// Nats per token.
double loss_of(const LoadedModel& model, const std::vector<int32_t>& tokens) {
  model::PagedDecoder decoder(
      model.config, model.weights->parameters(), model.weights->compute(),
      {.pages = 1, .page_rows = kWindow, .rows = kWindow, .logit_rows = kWindow});
  const auto stream = engine::make_cpu_stream(1);
  const std::vector<int32_t> pages = {0};
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < kWindow; ++i) rows.push_back(i);
  double sum = 0;
  int64_t count = 0;
  for (size_t first = 0; first + kWindow < tokens.size(); first += kWindow, count += kWindow) {
    const std::vector<model::PagedDecoder::Piece> pieces = {
        {std::span<const int32_t>(tokens).subspan(first, kWindow), 0, pages}};
    decoder.forward(*stream, pieces);
    const engine::Matrix logits = decoder.logits(*stream, rows);
    for (int64_t i = 0; i < kWindow; ++i) {
      const float* row = logits.row<float>(i);
      double total = 0;
      for (int64_t j = 0; j < logits.cols; ++j) total += std::exp(static_cast<double>(row[j]));
      sum += std::log(total) - static_cast<double>(row[tokens[first + static_cast<size_t>(i) + 1]]);
    }
  }
  return sum / static_cast<double>(count);
}

TEST(QuantizedLoss, FourBitsCostATrainedModelLessThanFivePercentOfPerplexity) {
  const spec::Recipe recipe = chain_recipe();
  train::Trainer trainer(recipe);
  trainer.initialize();
  train::testing::ChainBatches batches(recipe);
  constexpr int64_t kSteps = 200;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const double rate = 4e-3 * std::min(1.0, static_cast<double>(step) / 20) *
                        (1 - static_cast<double>(step) / (kSteps + 20));
    trainer.step(batches.source(), rate, step);
  }
  std::vector<int32_t> tokens;
  while (static_cast<int64_t>(tokens.size()) <= kWindow * kWindows) {
    const train::BatchView batch = batches.source()();
    tokens.insert(tokens.end(), batch.tokens, batch.tokens + 8 * 32);
  }
  tokens.resize(static_cast<size_t>(kWindow * kWindows) + 1);
  const double bf16 = loss_of(*testing::served(trainer), tokens);
  const double int8 = loss_of(*testing::served(trainer, PackKind::int8), tokens);
  const double int4 = loss_of(*testing::served(trainer, PackKind::int4), tokens);
  RecordProperty("bf16", std::to_string(bf16));
  RecordProperty("int8", std::to_string(int8));
  RecordProperty("int4", std::to_string(int4));
  EXPECT_LT(bf16, 1.5);  // 1.24 can be learned, 3.47 is what nothing has learned
  EXPECT_LT(std::exp(int8 - bf16), 1.005);
  EXPECT_LT(std::exp(int4 - bf16), 1.05);
  EXPECT_NE(int4, bf16);

  // Numbers rounded to packed ones, in bf16, as `tutti eval --weights` has them.
  const spec::ParamLayout& layout = trainer.layout();
  std::vector<float> flat = train::testing::flat_parameters(trainer);
  model::round_to_packed(recipe.model, layout, PackKind::int4, flat.data());
  LoadedModel rounded;
  rounded.config = recipe.model;
  rounded.weights =
      std::make_unique<model::InferenceWeights>(recipe.model, layout, DType::bf16, std::nullopt);
  for (const spec::PlacedParam& placed : layout.params) {
    rounded.weights->set(placed, 0, placed.param.count(), flat.data() + placed.element_offset);
  }
  EXPECT_NEAR(loss_of(rounded, tokens), int4, 0.005);
}

}  // namespace
}  // namespace tutti::endpoint
