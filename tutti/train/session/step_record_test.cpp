// What a step executes is what spec describes: the multiset of (operation, dims, FLOPs, bytes) that
// the kernels and libraries were handed equals Program x Schedule.
#include "tutti/train/testing/step_record.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/engine/backend.h"
#include "tutti/engine/recorder.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/schedule/action_operations.h"
#include "tutti/train/testing/family_models.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::capacity_recipe;
using testing::described;
using testing::distilled;
using testing::expect_equal;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::mixed_moe_recipe;
using testing::mixtral_recipe;
using testing::Multiset;
using testing::RandomBatches;
using testing::recorded;

TEST(StepRecord, EqualsProgramTimesSchedule) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe(), mixtral_recipe(), mixed_moe_recipe()}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      for (const int64_t micro : {6, 2}) {
        for (const double dropout : {0.0, 0.1}) {
          recipe.precision = precision;
          recipe.batch = {6, micro, 7};
          recipe.model.dropout = dropout;
          SCOPED_TRACE(fmt::format("{} {} micro {} dropout {}", recipe.model.name,
                                   precision == spec::Precision::f32 ? "f32" : "bf16", micro,
                                   dropout));
          expect_equal(recipe);
        }
      }
    }
  }
}

// The same action by action: what each does is what it is priced by.
void expect_equal_actions(const spec::Recipe& recipe) {
  SCOPED_TRACE(recipe.model.name);
  Trainer trainer(recipe);
  trainer.initialize();
  RandomBatches batches(recipe, 1);
  engine::Recorder recorder;
  std::vector<std::pair<spec::Action, size_t>> begun;  // and how many operations came before
  trainer.on_action(
      [&](const spec::Action& action) { begun.emplace_back(action, recorder.records().size()); });
  trainer.stream().set_recorder(&recorder);
  trainer.step(batches.source(), 1e-3, 1);
  trainer.stream().set_recorder(nullptr);
  const spec::Profile profile = spec::tutti_profile_on(recipe);
  const spec::Program program = spec::make_program(recipe, profile);
  const spec::ActionOperations operations(recipe, profile, program, trainer.layout(), {});
  for (size_t i = 0; i < begun.size(); ++i) {
    const auto& [action, first] = begun[i];
    const size_t end = i + 1 < begun.size() ? begun[i + 1].second : recorder.records().size();
    Multiset done, expected;
    for (size_t r = first; r < end; ++r) {
      const engine::OpRecord& record = recorder.records()[r];
      ++done[{record.op, record.dims, record.flops, record.bytes}];
    }
    operations.visit(action, [&](const spec::Op& op, bool first_of_step) {
      ++expected[{op.name, op.dims, op.flops, first_of_step ? op.first_bytes : op.bytes}];
    });
    SCOPED_TRACE(fmt::format("{} of micro-batch {}, {}", spec::action_name(action.kind),
                             action.micro, spec::part_text(action, recipe.parallel)));
    expect_equal(done, expected);
  }
}

TEST(StepRecord, EqualsTheOperationsOfEachAction) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe(), mixtral_recipe(), mixed_moe_recipe()}) {
    recipe.batch = {6, 2, 7};
    recipe.model.dropout = 0.1;
    expect_equal_actions(recipe);
  }
}

// Logits in 16 bits, and passes that do more at once.
TEST(DeviceStepRecord, EqualsProgramTimesSchedule) {
  const std::string missing = engine::find_backend("cuda").missing();
  if (!missing.empty()) GTEST_SKIP() << "skipped: " << missing;
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.device = "cuda";
    recipe.batch = {6, 2, 7};
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16, spec::Precision::fp8,
                                 spec::Precision::fp4}) {
      for (const bool head : {false, true}) {
        recipe.precision = precision;
        if (head && !spec::is_narrow(precision)) continue;
        recipe.narrow = {.head = head};
        SCOPED_TRACE(fmt::format("{} {} {}", recipe.model.name,
                                 name_of(spec::kPrecisionNames, precision), head));
        expect_equal(recipe);
        expect_equal_actions(recipe);
      }
    }
  }
}

TEST(StepRecord, UpdatesWithoutMasters) {
  spec::Recipe recipe = gpt_recipe();
  recipe.precision = spec::Precision::bf16;
  recipe.optimizer.master = spec::Master::none;
  for (const bool stochastic : {false, true}) {
    recipe.optimizer.stochastic_rounding = stochastic;
    expect_equal(recipe);
  }
}

TEST(StepRecord, RecomputationIsDescribed) {
  using spec::RecomputeMode;
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe(), mixed_moe_recipe(),
                              testing::plain_latent_recipe(), testing::deepseek_recipe()}) {
    recipe.precision = spec::Precision::bf16;
    recipe.batch = {6, 2, 7};
    recipe.model.layers = 3;
    recipe.model.dropout = 0.1;
    for (const int64_t layers : {0, 1, 2}) {
      recipe.recompute = {RecomputeMode::full, 0, layers};
      SCOPED_TRACE(fmt::format("{} first {} layers", recipe.model.name, layers));
      expect_equal(recipe);
      for (spec::Parts parts = 0; parts < 32; ++parts) {
        recipe.recompute = {RecomputeMode::selective, parts, layers};
        SCOPED_TRACE(fmt::format("parts {:#x}", parts));
        expect_equal(recipe);
      }
    }
  }
}

TEST(StepRecord, PartsOfNewerModels) {
  using spec::RecomputeMode;
  for (spec::Recipe recipe : {testing::qwen_recipe(), testing::gemma_recipe(),
                              testing::olmo_recipe(), testing::granite_recipe()}) {
    for (const bool adapters : {false, true}) {
      if (adapters) recipe = testing::adapted(recipe);
      for (const RecomputeMode mode :
           {RecomputeMode::none, RecomputeMode::selective, RecomputeMode::full}) {
        for (const spec::Precision precision :
             {spec::Precision::f32, spec::Precision::bf16, spec::Precision::fp8}) {
          recipe.precision = precision;
          recipe.batch = {6, 2, 7};
          recipe.recompute.mode = mode;
          SCOPED_TRACE(fmt::format("{} recompute {} {}", recipe.model.name,
                                   spec::name_of(spec::kRecomputeNames, mode),
                                   spec::name_of(spec::kPrecisionNames, precision)));
          expect_equal(recipe);
        }
      }
    }
  }
}

TEST(StepRecord, TodaysFamilies) {
  for (const std::string& family : testing::family_names()) {
    for (const auto mode : {spec::RecomputeMode::none, spec::RecomputeMode::full}) {
      spec::Recipe recipe = testing::family_recipe(family);
      recipe.precision = spec::Precision::bf16;
      recipe.batch = {4, 2, 16};  // longer than the windows
      recipe.model.dropout = 0.1;
      recipe.recompute.mode = mode;
      SCOPED_TRACE(fmt::format("{} {}", family, spec::name_of(spec::kRecomputeNames, mode)));
      expect_equal(recipe);
    }
  }
}

TEST(StepRecord, AdaptersBesideExperts) {
  for (spec::Recipe recipe :
       {testing::adapted(mixtral_recipe()), testing::adapted(mixed_moe_recipe())}) {
    for (const auto mode : {spec::RecomputeMode::none, spec::RecomputeMode::full}) {
      recipe.batch = {6, 2, 7};
      recipe.recompute.mode = mode;
      SCOPED_TRACE(recipe.model.name);
      expect_equal(recipe);
    }
  }
}

TEST(StepRecord, AdaptersAndNothingForFrozenWeights) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      for (const std::vector<std::string>& targets :
           std::vector<std::vector<std::string>>{{"qkv", "output", "mlp"},
                                                 {"query", "value"},
                                                 {"output"},
                                                 {"mlp.up"},
                                                 {"mlp.down"}}) {
        for (const double dropout : {0.0, 0.1}) {
          recipe.precision = precision;
          recipe.batch = {6, 2, 7};
          recipe.model.dropout = dropout;
          recipe.lora = {4, 8, dropout, targets};
          SCOPED_TRACE(
              fmt::format("{} {} dropout {}", recipe.model.name, fmt::join(targets, ","), dropout));
          expect_equal(recipe);
          recipe.recompute.mode = spec::RecomputeMode::full;
          expect_equal(recipe);
          recipe.recompute = {};
        }
      }
    }
  }
}

TEST(StepRecord, ProductsBelowSixteenBitsAndTheirOperands) {
  for (spec::Recipe recipe : {gpt_recipe(), llama_recipe()}) {
    recipe.batch = {6, 2, 7};
    recipe.model.layers = 3;
    for (const auto precision :
         {spec::Precision::fp8, spec::Precision::mxfp8, spec::Precision::fp4}) {
      for (const spec::NarrowConfig& narrow :
           {spec::NarrowConfig{}, spec::NarrowConfig{1, 1, true, false},
            spec::NarrowConfig{0, 2, false, true}, spec::NarrowConfig{3, 0, true, false}}) {
        recipe.precision = precision;
        recipe.narrow = narrow;
        SCOPED_TRACE(recipe.model.name + "\n" + spec::to_yaml(recipe));
        expect_equal(recipe);
        recipe.recompute.mode = spec::RecomputeMode::full;
        expect_equal(recipe);
        recipe.recompute = {};
      }
    }
    recipe.narrow = {};
    recipe.lora = {4, 8, 0.1, {"qkv", "mlp.down"}};
    expect_equal(recipe);
    recipe.lora = {};
    expect_equal(distilled(recipe, gpt_recipe().model));
  }
}

// Teachers of other architectures and sizes; students of every kind.
TEST(StepRecord, TeacherForwardPassIsDescribed) {
  spec::ModelConfig large = llama_recipe().model;
  large.layers = 3;
  large.hidden = 32;
  large.heads = 4;
  large.head_dim = 8;
  spec::Recipe routed = distilled(mixed_moe_recipe(), gpt_recipe().model);
  for (spec::Recipe recipe :
       {distilled(gpt_recipe(), large), distilled(llama_recipe(), gpt_recipe().model), routed,
        distilled(testing::adapted(gpt_recipe()), large),
        distilled(gpt_recipe(), mixed_moe_recipe().model)}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      for (const int64_t micro : {6, 2}) {
        recipe.precision = precision;
        recipe.batch = {6, micro, 7};
        recipe.model.dropout = 0.1;
        recipe.distill.model->dropout = 0.2;  // of its own training
        SCOPED_TRACE(fmt::format("{} from {} micro {}", recipe.model.name,
                                 recipe.distill.model->name, micro));
        expect_equal(recipe);
        recipe.recompute.mode = spec::RecomputeMode::full;
        expect_equal(recipe);
        recipe.recompute = {};
      }
    }
  }
  spec::Recipe chunks = distilled(gpt_recipe(), large);
  chunks.model.context = chunks.distill.model->context = 700;
  chunks.batch = {3, 3, 700};  // more rows than one loss chunk
  expect_equal(chunks);
}

TEST(StepRecord, UntiedHeadAndManyLossChunks) {
  spec::Recipe recipe = gpt_recipe();
  recipe.model.tied_embeddings = false;
  recipe.model.context = 700;
  recipe.batch = {3, 3, 700};  // more rows than one loss chunk
  expect_equal(recipe);
}

// With a capacity the rows of the experts are run-time values below the declared bound: everything
// else is as described, and of these the number of calls and the bound hold.
TEST(StepRecord, RoutedRowsStayBelowTheDeclaredBound) {
  spec::Recipe recipe = capacity_recipe();
  recipe.batch = {6, 2, 7};
  const auto split = [](const Multiset& all, std::map<std::string, std::vector<int64_t>>& rows) {
    Multiset rest;
    for (const auto& [key, count] : all) {
      const auto& [name, dims, flops, bytes] = key;
      if (name.starts_with("grouped_gemm")) {
        std::vector<int64_t>& list = rows[fmt::format("{} {}x{}", name, dims[2], dims[3])];
        list.insert(list.end(), static_cast<size_t>(count), dims[1]);
      } else {
        rest[key] = count;
      }
    }
    return rest;
  };
  std::map<std::string, std::vector<int64_t>> actual, expected;
  EXPECT_EQ(split(recorded(recipe), actual), split(described(recipe), expected));
  ASSERT_EQ(actual.size(), expected.size());
  const int64_t copies = 2 * 7 * recipe.model.moe.top_k;
  bool below = false;
  for (const auto& [key, bounds] : expected) {
    const std::vector<int64_t>& rows = actual[key];
    ASSERT_EQ(rows.size(), bounds.size()) << key;
    EXPECT_LT(bounds.front(), copies);
    for (const int64_t used : rows) {
      EXPECT_LE(used, bounds.front());
      EXPECT_GT(used, 0);
      below = below || used < bounds.front();
    }
  }
  EXPECT_TRUE(below);  // else the test shows nothing
}

TEST(StepRecord, ModelFlopsAreWhatMfuDivides) {
  for (const spec::Recipe& recipe :
       {llama_recipe(), mixtral_recipe(), mixed_moe_recipe(), capacity_recipe()}) {
    const spec::Program program = spec::make_program(recipe, spec::tutti_profile());
    const spec::Work work = spec::step_work(program, spec::make_schedule(recipe), 0);
    EXPECT_NEAR(work.model_flops, spec::model_flops_per_step(recipe),
                1e-9 * spec::model_flops_per_step(recipe))
        << recipe.model.name;
  }
}

}  // namespace
}  // namespace tutti::train
