#include "tutti/endpoint/inference_bench.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/model/paged_decode.h"
#include "tutti/spec/model/params.h"

namespace tutti::endpoint {
namespace {

spec::ModelConfig bench_config() {
  spec::ModelConfig model;
  model.name = "bench";
  model.layers = 2;
  model.hidden = 128;
  model.heads = model.kv_heads = 4;
  model.head_dim = 32;
  model.ffn = 256;
  model.vocabulary = 101;
  model.context = 64;
  return model;
}

TEST(BenchInference, CountsWhatIsComputedAndRead) {
  const spec::ModelConfig config = bench_config();
  InferenceBenchOptions options;
  options.prompt_tokens = 40;
  options.start_tokens = 6;
  options.answer_tokens = 8;
  options.streams = {1, 3};
  options.threads = 1;
  double weight_bytes[2] = {};
  for (const WeightType type : {WeightType::bf16, WeightType::int4}) {
    const auto model = random_model(config, type, 1);
    const InferenceSpeed speed = bench_inference(*model, options);
    EXPECT_EQ(speed.prompt.tokens, 40);
    EXPECT_GT(speed.prompt.seconds, 0);
    // 2 for each weight of the blocks' matrices, biases and norms beside them.
    const double products = 2 * (4 * 128 * 128 + 2 * 128 * 256);
    EXPECT_NEAR(speed.prompt.flops / (2 * 40), products, 0.1 * products);
    ASSERT_EQ(speed.answers.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(speed.answers[i].streams, options.streams[i]);
      EXPECT_GT(speed.answers[i].steps, 0);
      EXPECT_LE(speed.answers[i].steps, 8);
      EXPECT_GT(speed.answers[i].tokens_per_second, 0);
    }
    // Each further stream adds its cache.
    const auto row_bytes =
        static_cast<double>(model::PagedDecoder::cache_row_bytes(config, DType::bf16));
    EXPECT_DOUBLE_EQ(speed.answers[1].bytes_per_step - speed.answers[0].bytes_per_step,
                     2 * row_bytes * (6 + 8 / 2));
    weight_bytes[type == WeightType::int4 ? 1 : 0] =
        speed.answers[0].bytes_per_step - row_bytes * (6 + 8 / 2);
  }
  // The tied table takes 8 bits, and what is no matrix 16.
  EXPECT_LT(weight_bytes[1], 0.4 * weight_bytes[0]);
  EXPECT_GT(weight_bytes[1], 0.25 * weight_bytes[0]);
}

TEST(BenchInference, RefusesTextsBeyondTheContext) {
  const auto model = random_model(bench_config(), WeightType::f32, 1);
  EXPECT_THROW(bench_inference(*model, {.prompt_tokens = 64}), Error);
}

}  // namespace
}  // namespace tutti::endpoint
