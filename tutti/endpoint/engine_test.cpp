#include "tutti/endpoint/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <string>

#include "tutti/base/error.h"
#include "tutti/endpoint/testing/served_model.h"
#include "tutti/model/paged_decode.h"

namespace tutti::endpoint {
namespace {

using testing::Answer;
using testing::random_prompt;
using testing::random_trainer;
using testing::request;
using testing::run_all;
using testing::served;

using Recipes = std::vector<spec::Recipe>;

EngineOptions small_options() {
  EngineOptions out;
  out.page_tokens = 4;
  out.prefill_tokens = 32;
  out.threads = 2;
  return out;
}

// Every log probability that was reported is that of a full forward pass over the text.
void expect_forward(train::Trainer& trainer, const GenerationRequest& asked, const Answer& answer) {
  const int64_t vocabulary = trainer.recipe().model.vocabulary;
  std::vector<int32_t> text = asked.prompt;
  text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
  std::vector<int32_t> padded = text;
  padded.resize(static_cast<size_t>(testing::kContext) + 1, 0);
  const std::vector<float> logits = trainer.logits({padded.data(), padded.data() + 1, 0});
  for (size_t i = 0; i < answer.tokens.size(); ++i) {
    const float* row =
        logits.data() + static_cast<int64_t>(asked.prompt.size() + i - 1) * vocabulary;
    double sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(static_cast<double>(row[j]));
    EXPECT_EQ(std::max_element(row, row + vocabulary) - row, answer.tokens[i]);
    for (const TokenLogprob& top : answer.tops[i]) {
      EXPECT_NEAR(top.logprob, static_cast<double>(row[top.token]) - std::log(sum), 3e-4)
          << trainer.recipe().model.name << " token " << i;
    }
  }
}

Recipes all_families() {
  namespace t = train::testing;
  return {t::gpt_recipe(),       t::llama_recipe(),
          t::qwen_recipe(),      t::gemma_recipe(),
          t::olmo_recipe(),      t::granite_recipe(),
          t::mixtral_recipe(),   t::gpt_oss_recipe(),
          t::mixed_moe_recipe(), t::adapted(t::llama_recipe())};
}

TEST(Engine, AnswersAreThoseOfTheForwardPassOfTraining) {
  for (const spec::Recipe& recipe : all_families()) {
    const auto trainer = random_trainer(recipe);
    const auto model = served(*trainer);
    Engine engine(*model, small_options());
    // Longer than a chunk, than a page, and than nothing.
    std::vector<GenerationRequest> asked;
    for (const int64_t length : {43, 5, 1}) asked.push_back(request(random_prompt(length, 3), 9));
    const auto answers = run_all(engine, asked);
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(answers[i]->tokens.size(), 9U);
      expect_forward(*trainer, asked[i], *answers[i]);
    }
  }
}

// Latent attention caches compressed rows. How many rows a pass has may change its roundings.
TEST(Engine, LatentModelsAnswerAsTrainingComputes) {
  namespace t = train::testing;
  for (const spec::Recipe& recipe :
       {t::latent_recipe(), t::plain_latent_recipe(), t::deepseek_recipe()}) {
    const auto trainer = random_trainer(recipe);
    const auto model = served(*trainer);
    Engine engine(*model, small_options());
    std::vector<GenerationRequest> asked;
    for (const int64_t length : {43, 5, 1, 20, 20}) {
      asked.push_back(request(random_prompt(length, 3), 9));
    }
    const auto answers = run_all(engine, asked);
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_EQ(answers[i]->tokens.size(), 9U);
      expect_forward(*trainer, asked[i], *answers[i]);
    }
    const auto shared = run_all(engine, {asked[0]});  // from the cached prefix
    EXPECT_EQ(shared[0]->tokens, answers[0]->tokens);
    EXPECT_EQ(shared[0]->last.cached_prompt_tokens, 40);
  }
}

std::vector<GenerationRequest> many_requests(size_t count) {
  std::vector<GenerationRequest> out;
  for (size_t i = 0; i < count; ++i) {
    const auto n = static_cast<int64_t>(i);
    out.push_back(request(random_prompt(1 + n * 7 % 45, i), 5 + n % 9, n % 3 == 0 ? 0 : 0.9, i));
  }
  return out;
}

void expect_same(const std::vector<std::unique_ptr<Answer>>& answers,
                 const std::vector<std::unique_ptr<Answer>>& expected, bool bits) {
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(answers[i]->tokens, expected[i]->tokens) << "request " << i;
    if (!bits) continue;
    EXPECT_EQ(answers[i]->logprobs, expected[i]->logprobs) << "request " << i;
  }
}

std::vector<std::unique_ptr<Answer>> one_by_one(const LoadedModel& model,
                                                const EngineOptions& options,
                                                const std::vector<GenerationRequest>& asked) {
  std::vector<std::unique_ptr<Answer>> out;
  for (const GenerationRequest& one : asked) {
    Engine engine(model, options);
    out.push_back(std::move(run_all(engine, {one}).front()));
  }
  return out;
}

// To the bit, in bf16 too.
TEST(Engine, SixteenSideBySideAreEachAlone) {
  for (spec::Recipe recipe : all_families()) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      if (precision == spec::Precision::f32 && recipe.model.moe.experts == 0) continue;
      recipe.precision = precision;
      const auto trainer = random_trainer(recipe);
      const auto model = served(*trainer);
      EngineOptions options = small_options();
      options.prefix_caching = false;
      const std::vector<GenerationRequest> asked = many_requests(16);
      const auto alone = one_by_one(*model, options, asked);
      Engine engine(*model, options);
      expect_same(run_all(engine, asked), alone, recipe.lora.rank == 0);
      EXPECT_EQ(
          engine.stats().generation_tokens,
          std::accumulate(alone.begin(), alone.end(), int64_t{0}, [](int64_t sum, const auto& one) {
            return sum + static_cast<int64_t>(one->tokens.size());
          }));
      EXPECT_EQ(engine.stats().cache_pages_used, 0);
    }
  }
}

TEST(Engine, ChunksChangeNothing) {
  for (const spec::Recipe& recipe :
       {train::testing::gemma_recipe(), train::testing::mixtral_recipe()}) {
    const auto trainer = random_trainer(recipe);
    const auto model = served(*trainer);
    const std::vector<GenerationRequest> asked = many_requests(9);
    EngineOptions options = small_options();
    Engine whole(*model, options);
    const auto expected = run_all(whole, asked);
    for (const int64_t tokens : {1, 3, 7, 64}) {
      options.prefill_tokens = tokens;
      for (const int64_t page : {1, 5, 64}) {
        options.page_tokens = page;
        Engine engine(*model, options);
        expect_same(run_all(engine, asked), expected, false);
      }
    }
  }
}

TEST(Engine, CommonPrefixesAreComputedOnceAndChangeNothing) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    spec::Recipe recipe = train::testing::qwen_recipe();
    recipe.precision = precision;
    const auto trainer = random_trainer(recipe);
    const auto model = served(*trainer);
    EngineOptions options = small_options();
    options.batch_invariant = true;
    std::vector<GenerationRequest> asked;
    for (const int64_t length : {40, 41, 23, 40}) {
      std::vector<int32_t> prompt = random_prompt(40, 8);
      prompt.resize(static_cast<size_t>(length), 7);
      asked.push_back(request(std::move(prompt), 6));
    }
    const auto alone = one_by_one(*model, options, asked);
    Engine engine(*model, options);
    std::vector<std::unique_ptr<Answer>> shared;
    for (const GenerationRequest& one : asked) {
      shared.push_back(std::move(run_all(engine, {one}).front()));
    }
    expect_same(shared, alone, true);
    EXPECT_EQ(shared[0]->last.cached_prompt_tokens, 0);
    EXPECT_EQ(shared[1]->last.cached_prompt_tokens, 40);
    EXPECT_EQ(shared[2]->last.cached_prompt_tokens, 20);
    EXPECT_EQ(shared[3]->last.cached_prompt_tokens, 36);  // the last token is always computed
    EXPECT_EQ(engine.stats().prefix_query_tokens, 40 + 41 + 23 + 40);
    EXPECT_EQ(engine.stats().prefix_hit_tokens, 40 + 20 + 36);
    // The answer is part of the text that follows.
    std::vector<int32_t> longer = asked[0].prompt;
    longer.insert(longer.end(), shared[0]->tokens.begin(), shared[0]->tokens.end());
    const auto next = run_all(engine, {request(longer, 4)});
    EXPECT_EQ(next[0]->last.cached_prompt_tokens, 44);
    expect_same(next, one_by_one(*model, options, {request(longer, 4)}), true);
  }
}

// A cache for a few texts at a time: the youngest give up their pages and compute them again.
TEST(Engine, PreemptionChangesNothing) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    spec::Recipe recipe = train::testing::gpt_oss_recipe();
    recipe.precision = precision;
    const auto trainer = random_trainer(recipe);
    const auto model = served(*trainer);
    EngineOptions options = small_options();
    options.batch_invariant = true;
    std::vector<GenerationRequest> asked;
    for (uint64_t i = 0; i < 6; ++i) {
      asked.push_back(request(random_prompt(3 + static_cast<int64_t>(i), i), 40, 0.8, i));
    }
    const auto alone = one_by_one(*model, options, asked);
    options.cache_bytes =
        25 * options.page_tokens *
        model::PagedDecoder::cache_row_bytes(model->config, model->weights->compute());
    for (const bool caching : {false, true}) {
      options.prefix_caching = caching;
      Engine engine(*model, options);
      expect_same(run_all(engine, asked), alone, true);
      EXPECT_EQ(engine.stats().cache_pages, 25);
      EXPECT_GT(engine.stats().preemptions, 0);
      EXPECT_EQ(engine.stats().cache_pages_used, 0);
    }
  }
}

TEST(Engine, PackedWeightsAreThoseThatTheyStandFor) {
  for (const PackKind kind : {PackKind::int8, PackKind::int4}) {
    for (spec::Recipe recipe :
         {train::testing::gpt_recipe(), train::testing::gpt_oss_recipe(),
          train::testing::mixed_moe_recipe(), train::testing::deepseek_recipe()}) {
      const auto trainer = random_trainer(recipe);
      const auto packed = served(*trainer, kind);
      // The same numbers, unpacked, are the parameters of a model in f32.
      std::vector<float> master = train::testing::flat_parameters(*trainer);
      for (const spec::PlacedParam& placed : trainer->layout().params) {
        float* values = master.data() + placed.element_offset;
        const bool last = placed.name == "embedding.token.weight" || placed.name == "head.weight";
        const bool looked_up =
            placed.name.starts_with("embedding.") &&
            (placed.name != "embedding.token.weight" || !recipe.model.tied_embeddings);
        const bool router = placed.name.find(".router.") != std::string::npos;
        const bool expands = placed.name.ends_with(".kv_up.weight");
        const bool is_packed = placed.param.shape.size() > 1 && !looked_up && !router && !expands &&
                               placed.name.ends_with(".weight");
        const int64_t columns = placed.param.shape.back();
        const PackKind own = last ? PackKind::int8 : kind;
        const PackedLayout layout = packed_layout(own, 1, columns);
        std::vector<uint8_t> codes(static_cast<size_t>(layout.row_bytes));
        std::vector<bf16> scales(static_cast<size_t>(layout.groups));
        for (int64_t at = 0; is_packed && at < placed.param.count(); at += columns) {
          pack_row(own, values + at, columns, codes.data(), scales.data());
          unpack_row(own, codes.data(), scales.data(), columns, values + at);
        }
        trainer->state().set_parameter(placed, values);
      }
      trainer->state_changed();
      Engine engine(*packed, small_options());
      const GenerationRequest asked = request(random_prompt(33, 5), 9);
      const auto answers = run_all(engine, {asked});
      expect_forward(*trainer, asked, *answers.front());
    }
  }
}

TEST(Engine, EndsWhereItIsAskedTo) {
  const auto trainer = random_trainer(train::testing::llama_recipe());
  const auto model = served(*trainer);
  Engine engine(*model, small_options());
  const auto free = run_all(engine, {request(random_prompt(5, 1), 12)});
  EXPECT_EQ(free[0]->last.finish, FinishReason::length);
  GenerationRequest stops = request(random_prompt(5, 1), 12);
  stops.sampling.stop_tokens = {free[0]->tokens[3]};
  const auto first = std::find(free[0]->tokens.begin(), free[0]->tokens.end(), free[0]->tokens[3]) -
                     free[0]->tokens.begin();
  const auto stopped = run_all(engine, {stops});
  EXPECT_EQ(stopped[0]->last.finish, FinishReason::stop);
  EXPECT_EQ(stopped[0]->tokens.size(), static_cast<size_t>(first) + 1);
  // The context ends the longest answer.
  const auto longest = run_all(engine, {request(random_prompt(60, 1), 100)});
  EXPECT_EQ(longest[0]->last.finish, FinishReason::length);
  EXPECT_EQ(longest[0]->tokens.size(), 4U);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.finished_stop, 1);
  EXPECT_EQ(stats.finished_length, 2);
  EXPECT_EQ(stats.time_to_first_token_seconds.count, 3);
  EXPECT_EQ(stats.time_per_output_token_seconds.count, stats.generation_tokens - 3);
  EXPECT_EQ(stats.end_to_end_seconds.count, 3);
}

TEST(Engine, ACancelledRequestGivesItsPagesBack) {
  const auto trainer = random_trainer(train::testing::llama_recipe());
  const auto model = served(*trainer);
  EngineOptions options = small_options();
  options.prefix_caching = false;
  options.max_sequences = 1;
  options.max_waiting = 1;
  Engine engine(*model, options);
  Answer running;
  Answer waiting;
  // A sink that holds the engine until the test has seen it run.
  std::mutex gate;
  gate.lock();
  const Engine::Sink keep = running.sink();
  const auto id =
      engine.submit(request(random_prompt(30, 1), 30), [&](const GenerationOutput& out) {
        keep(out);
        if (out.finish != FinishReason::none) return;
        const std::lock_guard hold(gate);
      });
  ASSERT_TRUE(id.has_value());
  running.wait_for_tokens(1);
  const auto second = engine.submit(request({1}, 3), waiting.sink());
  ASSERT_TRUE(second.has_value());
  EXPECT_FALSE(engine.submit(request({1}, 3), [](const GenerationOutput&) {}).has_value());
  EXPECT_EQ(engine.stats().waiting, 1);
  engine.cancel(*id);
  engine.cancel(*second + 7);  // never was
  const size_t before = running.tokens.size();
  gate.unlock();
  running.wait();
  EXPECT_EQ(running.last.finish, FinishReason::cancelled);
  EXPECT_LE(running.tokens.size(), before + 1);
  waiting.wait();
  EXPECT_EQ(waiting.last.finish, FinishReason::length);
  engine.drain();
  EXPECT_EQ(engine.stats().cache_pages_used, 0);
  EXPECT_EQ(engine.stats().finished_cancelled, 1);
  EXPECT_FALSE(engine.submit(request({1}, 3), [](const GenerationOutput&) {}).has_value());
}

TEST(Engine, ItsEndCancelsWhatRuns) {
  const auto trainer = random_trainer(train::testing::llama_recipe());
  const auto model = served(*trainer);
  std::vector<std::unique_ptr<Answer>> answers;
  {
    Engine engine(*model, small_options());
    for (uint64_t i = 0; i < 30; ++i) {
      answers.push_back(std::make_unique<Answer>());
      EXPECT_TRUE(engine.submit(request({1, 2, 3}, 60), answers.back()->sink()).has_value());
    }
  }
  for (const auto& answer : answers) {
    answer->wait();
    EXPECT_NE(answer->last.finish, FinishReason::none);
  }
}

std::string refusal(Engine& engine, const GenerationRequest& asked) {
  try {
    engine.submit(asked, [](const GenerationOutput&) {});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(Engine, RefusesWhatCannotBeServed) {
  const auto trainer = random_trainer(train::testing::llama_recipe());
  const auto model = served(*trainer);
  Engine engine(*model, small_options());
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(says(refusal(engine, request({}, 3)), "no tokens"));
  EXPECT_TRUE(says(refusal(engine, request(random_prompt(64, 1), 3)), "64 tokens"));
  EXPECT_TRUE(says(refusal(engine, request({101}, 3)), "101"));
  EXPECT_TRUE(says(refusal(engine, request({-1}, 3)), "-1"));
  EXPECT_TRUE(says(refusal(engine, request({1}, 0)), "max_tokens"));
  GenerationRequest adapter = request({1}, 3);
  adapter.adapter = "mine";
  EXPECT_TRUE(says(refusal(engine, adapter), "mine"));
  GenerationRequest wrong = request({1}, 3);
  wrong.sampling.top_p = 1.5;
  EXPECT_TRUE(says(refusal(engine, wrong), "top_p"));
  EngineOptions options = small_options();
  options.cache_bytes = 10;
  EXPECT_THROW(Engine(*model, options), Error);
  options = small_options();
  options.page_tokens = 0;
  EXPECT_THROW(Engine(*model, options), Error);
}

}  // namespace
}  // namespace tutti::endpoint
