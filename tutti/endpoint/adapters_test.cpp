// Adapters per request over one model: each as if it were alone, all beside each other, equal to
// the merged models.
#include "tutti/endpoint/adapters.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/huggingface/adapter.h"
#include "tutti/checkpoint/huggingface/export.h"
#include "tutti/checkpoint/store/writer.h"
#include "tutti/checkpoint/testing/hf_fixture.h"
#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/testing/served_model.h"
#include "tutti/model/paged_decode.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/step/initial_weights.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::endpoint {
namespace {

using checkpoint::error_of;
using checkpoint::FakeHfModel;
using checkpoint::says;
using testing::random_prompt;
using testing::request;
using testing::run_all;

constexpr const char* kBaseStep = "base/checkpoints/step-00000000";

// A base run of Llama, and runs of adapters on it as training leaves them.
class Adapters : public ::testing::Test {
 protected:
  Adapters() {
    Json config = checkpoint::llama_json();
    config["hidden_size"] = 64;
    config["num_attention_heads"] = 4;
    config["intermediate_size"] = 96;
    config["vocab_size"] = 101;
    FakeHfModel(config).write(files_, "hf");
    train::import_run(files_, "hf", "base", {});
    write_run("wide", {4, 8, 0, {"query", "value", "output", "mlp"}}, 1);
    write_run("fused", {2, 6, 0, {"qkv", "mlp.down"}}, 2);
  }

  // Random adapters, as large as what they are added to.
  void write_run(const std::string& name, const spec::LoraConfig& lora, uint64_t seed) {
    spec::Recipe recipe = train::load_recipe(files_, "base");
    recipe.lora = lora;
    recipe.run.name = name;
    recipe.checkpoint.initialize_from = "base";
    const spec::ParamLayout layout =
        spec::param_layout(spec::param_table(recipe.model, recipe.lora));
    std::vector<float>& flat = flat_[name];
    flat.resize(static_cast<size_t>(layout.elements));
    fill_normal(flat.data(), layout.trainable_elements, seed, 0, 0, 0.2F);
    std::vector<checkpoint::TensorSource> tensors;
    for (const spec::PlacedParam& placed : layout.params) {
      if (!placed.param.trainable) continue;
      tensors.push_back({"param." + placed.name,
                         DType::f32,
                         placed.param.shape,
                         reinterpret_cast<const char*>(flat.data() + placed.element_offset),
                         {},
                         {}});
    }
    train::RunState state;
    state.base = train::base_of(files_, kBaseStep);
    checkpoint::write_checkpoint(files_, name + "/checkpoints", tensors,
                                 train::to_checkpoint_state(state, recipe), {});
    write_file_atomic(files_, name + "/recipe.yaml", spec::to_yaml(recipe));
    checkpoint::export_adapter(files_, layout, recipe.model, flat.data(), "base", name + "-peft");
  }

  std::unique_ptr<LoadedModel> load(WeightType weights, const std::vector<std::string>& adapters,
                                    const std::string& base = "base") {
    auto out = load_model(files_, base, weights, 1);
    for (const std::string& name : adapters) add_adapter(files_, *out, name, name);
    return out;
  }

  // The model of a run of adapters, merged.
  std::unique_ptr<LoadedModel> merged(const std::string& name) {
    train::ExportOptions options;
    options.tokenizer = "";
    train::export_run(files_, name, name + "-merged", options);
    return load_model(files_, name + "-merged", WeightType::f32, 1);
  }

  MemoryFileSystem files_;
  std::map<std::string, std::vector<float>> flat_;
};

EngineOptions options_of(bool batch_invariant) {
  EngineOptions out;
  out.page_tokens = 4;
  out.prefill_tokens = 32;
  out.threads = 1;
  out.batch_invariant = batch_invariant;
  return out;
}

GenerationRequest ask(const std::string& adapter, int64_t length, uint64_t seed) {
  GenerationRequest out = request(random_prompt(length, seed), 8);
  out.adapter = adapter;
  return out;
}

// Requests of both adapters and of none, side by side and over shared prompts, have the bits of
// each adapter's own engine.
TEST_F(Adapters, MixedRequestsAreEachAdaptersAlone) {
  const std::vector<std::string> names = {"", "wide", "fused"};
  for (const WeightType type : {WeightType::f32, WeightType::bf16, WeightType::int4}) {
    std::vector<GenerationRequest> all;
    for (size_t i = 0; i < 12; ++i) {
      all.push_back(ask(names[i % 3], i < 6 ? 30 : static_cast<int64_t>(1 + 3 * i), i / 6));
    }
    const auto both = load(type, {"wide", "fused"});
    Engine engine(*both, options_of(true));
    const auto mixed = run_all(engine, all);
    for (const std::string& name : names) {
      const auto alone = load(type, name.empty() ? std::vector<std::string>{} : std::vector{name});
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].adapter != name) continue;
        Engine own(*alone, options_of(true));
        const auto expected = run_all(own, {all[i]});
        EXPECT_EQ(mixed[i]->tokens, expected.front()->tokens) << name << " " << i;
        EXPECT_EQ(mixed[i]->logprobs, expected.front()->logprobs) << name << " " << i;
      }
    }
    EXPECT_NE(mixed[0]->tokens, mixed[1]->tokens);
    EXPECT_NE(mixed[1]->tokens, mixed[2]->tokens);
  }
}

TEST_F(Adapters, AnswersAreThoseOfTheMergedModel) {
  const auto base = load(WeightType::f32, {"wide", "fused"});
  Engine engine(*base, options_of(false));
  for (const std::string name : {"wide", "fused"}) {
    const auto whole = merged(name);
    Engine other(*whole, options_of(false));
    for (const int64_t length : {1, 7, 45}) {
      GenerationRequest asked = ask(name, length, 3);
      const auto got = run_all(engine, {asked});
      asked.adapter.clear();
      const auto expected = run_all(other, {asked});
      EXPECT_EQ(got.front()->tokens, expected.front()->tokens) << name << " " << length;
      ASSERT_EQ(got.front()->logprobs.size(), expected.front()->logprobs.size());
      for (size_t i = 0; i < got.front()->logprobs.size(); ++i) {
        EXPECT_NEAR(got.front()->logprobs[i], expected.front()->logprobs[i], 3e-4) << i;
      }
    }
  }
}

TEST_F(Adapters, PrefixesAreSharedWithinAnAdapterOnly) {
  const auto base = load(WeightType::f32, {"wide", "fused"});
  Engine engine(*base, options_of(false));
  const auto cached = [&](const std::string& adapter) {
    return run_all(engine, {ask(adapter, 43, 5)}).front()->last.cached_prompt_tokens;
  };
  EXPECT_EQ(cached(""), 0);
  EXPECT_EQ(cached("wide"), 0);
  EXPECT_EQ(cached("fused"), 0);
  EXPECT_EQ(cached("wide"), 40);
  EXPECT_EQ(cached(""), 40);
  EXPECT_EQ(cached("fused"), 40);
}

// Preempted requests take their adapter's pages again, and say the same.
TEST_F(Adapters, PreemptionChangesNothing) {
  const auto base = load(WeightType::f32, {"wide", "fused"});
  const std::vector<std::string> names = {"", "wide", "fused"};
  std::vector<GenerationRequest> all;
  for (size_t i = 0; i < 9; ++i) {
    all.push_back(ask(names[i % 3], 20, i));
    all.back().sampling.max_tokens = 25;
  }
  Engine roomy(*base, options_of(true));
  const auto expected = run_all(roomy, all);
  EngineOptions options = options_of(true);
  options.cache_bytes =
      16 * options.page_tokens *
      model::PagedDecoder::cache_row_bytes(base->config, base->weights->compute());
  Engine tight(*base, options);
  const auto got = run_all(tight, all);
  EXPECT_GT(tight.stats().preemptions, 0);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(got[i]->tokens, expected[i]->tokens) << i;
}

TEST_F(Adapters, FoldersOfPeftAreTheSameAdapters) {
  const auto base = load(WeightType::f32, {"wide", "wide-peft", "fused", "fused-peft"});
  EXPECT_GT(base->resident_bytes(), base->weights->bytes());
  Engine engine(*base, options_of(false));
  for (const std::string name : {"wide", "fused"}) {
    const auto run = run_all(engine, {ask(name, 9, 4)});
    const auto peft = run_all(engine, {ask(name + "-peft", 9, 4)});
    EXPECT_EQ(peft.front()->tokens, run.front()->tokens);
    for (size_t i = 0; i < run.front()->logprobs.size(); ++i) {
      EXPECT_NEAR(peft.front()->logprobs[i], run.front()->logprobs[i], 3e-4);
    }
  }
  // Over a folder of transformers, too.
  const auto hf = load(WeightType::f32, {"wide"}, "hf");
  Engine other(*hf, options_of(false));
  EXPECT_EQ(run_all(other, {ask("wide", 9, 4)}).front()->tokens,
            run_all(engine, {ask("wide", 9, 4)}).front()->tokens);
}

TEST_F(Adapters, UnknownAndForeignAdaptersAreNamed) {
  const auto base = load(WeightType::f32, {"wide"});
  {
    Engine engine(*base, options_of(false));
    testing::Answer answer;
    EXPECT_TRUE(says(error_of([&] { engine.submit(ask("fused", 4, 1), answer.sink()); }),
                     ErrorKind::usage, "'fused' is not loaded"));
  }
  const auto adding = [&](LoadedModel& model, const char* path) {
    return error_of([&] { add_adapter(files_, model, "x", path); });
  };
  EXPECT_TRUE(says(adding(*base, "nowhere"), ErrorKind::not_found, "'nowhere'"));
  EXPECT_TRUE(says(adding(*base, "base"), ErrorKind::usage, "has no adapters"));
  const auto own = load_model(files_, "wide", WeightType::f32, 1);
  EXPECT_TRUE(says(adding(*own, "fused"), ErrorKind::usage, "checkpoint merge"));
  // Another checkpoint of the same model, and another model.
  Json config = parse_json(read_file(files_, "hf/config.json"), "config");
  FakeHfModel another(config);
  another.bytes_of.begin()->second[1] ^= 1;
  another.write(files_, "hf2");
  train::import_run(files_, "hf2", "base2", {});
  const auto other = load_model(files_, "base2", WeightType::f32, 1);
  EXPECT_TRUE(says(adding(*other, "wide"), ErrorKind::usage, "another checkpoint"));
  config["num_key_value_heads"] = 4;
  FakeHfModel(config).write(files_, "hf3");
  const auto third = load_model(files_, "hf3", WeightType::f32, 1);
  EXPECT_TRUE(says(adding(*third, "wide"), ErrorKind::usage, "kv_heads 2"));
}

}  // namespace
}  // namespace tutti::endpoint
