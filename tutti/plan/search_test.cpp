#include "tutti/plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "tutti/base/error.h"
#include "tutti/catalog/catalog.h"
#include "tutti/plan/pressure.h"
#include "tutti/spec/model/params.h"
#include "tutti_test_paths.h"

namespace tutti::plan {
namespace {

const catalog::Catalog& shipped() {
  static const catalog::Catalog catalog =
      catalog::load_catalog(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  return catalog;
}

spec::Recipe recipe_of(const std::string& model, const std::vector<std::string>& overrides) {
  return spec::parse_recipe("model: " + model + "\n", "test", overrides,
                            std::string(TUTTI_SOURCE_DIR) + "/recipes/models");
}

// Whether this build is optimized.
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr bool kMeasures = true;
#else
constexpr bool kMeasures = false;
#endif

const spec::Profile& profile() { return spec::find_profile("megatron-te"); }

LayoutSpace space_of(const spec::Recipe& recipe, int64_t chips) {
  LayoutSpace space;
  space.recipe = &recipe;
  space.chips = chips;
  space.precisions = {spec::Precision::bf16};
  return space;
}

// Enumerates every layout of a space.
std::vector<Layout> all_layouts(const LayoutSpace& space, Enumerated* counts = nullptr) {
  std::vector<Layout> out;
  const Enumerated counted = for_each_group(space, [&](const Layout& group) {
    for (const ScheduleChoice& choice : schedules_of(space, group)) {
      for (const int64_t zero : zero_stages_of(space, group)) {
        Layout layout = group;
        layout.mesh.pipeline = choice.pipeline;
        layout.mesh.vpp = choice.vpp;
        layout.mesh.zero = zero;
        out.push_back(layout);
      }
    }
  });
  if (counts != nullptr) *counts = counted;
  return out;
}

bool is_valid(spec::Recipe recipe, const Layout& layout) {
  apply(layout, recipe);
  try {
    spec::validate(recipe);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Exactly the layouts that the recipe reader accepts are enumerated, of all products of small axes;
// and the counts add up.
TEST(Layouts, AreThoseThatRecipesAccept) {
  for (const char* model : {"moe-tiny", "gpt2-124m"}) {
    SCOPED_TRACE(model);
    const spec::Recipe recipe = recipe_of(model, {"batch.global=12", "batch.sequence=48"});
    const LayoutSpace space = space_of(recipe, 12);
    Enumerated counts;
    const std::vector<Layout> layouts = all_layouts(space, &counts);
    EXPECT_EQ(counts.considered - counts.indivisible, static_cast<int64_t>(layouts.size()));
    size_t accepted = 0;
    const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 8, 12};
    for (const int64_t tp : sizes) {
      for (const int64_t pp : sizes) {
        for (const int64_t cp : sizes) {
          if (12 % (tp * pp * cp) != 0) continue;
          for (const int64_t ep : sizes) {
            for (const int64_t micro : sizes) {
              for (int64_t vpp = 1; vpp <= recipe.model.layers; ++vpp) {
                Layout layout;
                layout.mesh = {
                    .dp = 12 / (tp * pp * cp), .tp = tp, .pp = pp, .vpp = vpp, .cp = cp, .ep = ep};
                layout.micro = micro;
                layout.recompute.mode = spec::RecomputeMode::full;
                const bool listed =
                    std::find(layouts.begin(), layouts.end(), layout) != layouts.end();
                EXPECT_EQ(listed, is_valid(recipe, layout)) << layout_text(layout);
                if (listed) ++accepted;
              }
            }
          }
        }
      }
    }
    EXPECT_GT(accepted, 20U);
    for (const Layout& layout : layouts) EXPECT_TRUE(is_valid(recipe, layout));
  }
}

TEST(Layouts, KeptAxesKeepTheRecipesValues) {
  const spec::Recipe recipe =
      recipe_of("gpt2-124m", {"batch.global=32", "batch.micro=2", "parallel.tp=4", "parallel.dp=2",
                              "parallel.zero=1", "recompute=full"});
  LayoutSpace space = space_of(recipe, 32);
  keep_axis(space.kept, "layout");
  const std::vector<Layout> layouts = all_layouts(space);
  ASSERT_EQ(layouts.size(), 1U);
  Layout expected = layout_of(recipe);
  expected.mesh.dp = 8;
  EXPECT_EQ(layouts[0], expected);
  EXPECT_THROW(keep_axis(space.kept, "dp"), Error);
}

TEST(Layouts, YamlAndOverridesRestoreTheLayout) {
  const spec::Recipe recipe = recipe_of("llama2-70b", {"batch.global=64", "batch.micro=1"});
  const std::vector<Layout> layouts = all_layouts(space_of(recipe, 64));
  ASSERT_GT(layouts.size(), 100U);
  for (size_t i = 0; i < layouts.size(); i += 97) {
    const std::string models = std::string(TUTTI_SOURCE_DIR) + "/recipes/models";
    const spec::Recipe pasted = spec::parse_recipe(
        "model: llama2-70b\n" + layout_yaml(layouts[i], recipe.batch), "pasted", {}, models);
    EXPECT_EQ(layout_of(pasted), layouts[i]) << layout_yaml(layouts[i], recipe.batch);
    std::vector<std::string> overrides = layout_overrides(layouts[i]);
    overrides.emplace_back("batch.global=64");
    EXPECT_EQ(layout_of(recipe_of("llama2-70b", overrides)), layouts[i]);
  }
}

struct Case {
  const char* model;
  const char* system;
  int64_t chips;
  const char* batch;
  const char* profile = "megatron-te";
  const char* device = "cpu";  // for Tutti's own program
  bool narrow = true;          // every precision of the chip, else 16 bits
  std::vector<std::string> overrides = {};

  spec::Recipe recipe() const {
    std::vector<std::string> all = overrides;
    all.insert(all.end(), {batch, std::string("device=") + device});
    return recipe_of(model, all);
  }
  // The constants that price every layout.
  spec::Profile profile_of(const spec::Recipe& recipe, const catalog::Chip& chip) const {
    return profile_on(spec::find_profile(profile), recipe, chip);
  }
};

// For random layouts of many models and systems: no bound exceeds the prediction.
TEST(Bound, IsNeverAbovePredictedTimeAndMemory) {
  const Case cases[] = {{"gpt3-175b", "dgx-h100", 512, "batch.global=768"},
                        {"llama3.1-405b", "superpod-h100", 1024, "batch.global=512"},
                        {"llama2-70b", "a100-80-roce", 96, "batch.global=192"},
                        {"deepseek-v3", "azure-nd-gb200-v6", 576, "batch.global=1152"},
                        {"mixtral-8x7b", "dgx-b200", 64, "batch.global=128"},
                        {"gpt2-1558m", "meta-24k", 48, "batch.global=480"},
                        {"deepseek-v2", "mi300x-8", 40, "batch.global=80"},
                        {"llama3.1-8b", "dgx-h100", 48, "batch.global=192", "tutti", "cuda"},
                        {"gpt2-1558m", "dgx-a100", 24, "batch.global=96", "tutti", "cuda"},
                        {"mixtral-8x7b", "dgx-h100", 32, "batch.global=64", "tutti", "cuda", false},
                        {"gpt2-1558m", "dgx-a100", 24, "batch.global=96", "tutti"},
                        {"llama2-70b", "dgx-h100", 64, "batch.global=256", "llama3"},
                        {"llama3.1-8b",
                         "dgx-h100",
                         16,
                         "batch.global=64",
                         "tutti",
                         "cpu",
                         false,
                         {"model.window=1024", "model.global_layers=[5, 11, 17, 23, 29]",
                          "model.unrotated_layers=[5, 11]", "model.query_key_norm=head"}}};
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed());
  std::printf("seed %u (--gtest_random_seed=%u repeats it)\n", seed, seed);
  std::mt19937_64 random(seed);
  const std::vector<Constants> sets =
      load_constants(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  int64_t checked = 0;
  double tightness = 0;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.model);
    const spec::Recipe recipe = c.recipe();
    const catalog::System& system = shipped().system(c.system);
    const Constants* found = find_constants(sets, system.chip.generation, "");
    const Constants constants = found != nullptr ? *found : assumed_constants();
    LayoutSpace space = space_of(recipe, c.chips);
    if (c.narrow) space.precisions = precisions_of(system.chip, recipe.precision);
    std::vector<Layout> groups;
    for_each_group(space, [&](const Layout& group) { groups.push_back(group); });
    std::shuffle(groups.begin(), groups.end(), random);
    if (groups.size() > 60) groups.resize(60);
    LayoutBounds bounds(recipe, spec::find_profile(c.profile), system, constants);
    PipelineSimulator simulator;
    Predictor predictor(system, constants, simulator);
    for (const Layout& group : groups) {
      const Bound outer = bounds.group(group);
      bounds.layouts(group, schedules_of(space, group), zero_stages_of(space, group), 1e300, 1e300,
                     [&](const Layout& layout, const Bound& bound) {
                       if (random() % 4 != 0) return;
                       spec::Recipe one = recipe;
                       apply(layout, one);
                       const spec::Profile own = c.profile_of(one, system.chip);
                       const double seconds = predictor.step(one, own).step_seconds;
                       const double bytes = predict_memory(one, own, system, constants).bytes;
                       EXPECT_LE(bound.seconds, seconds) << layout_text(layout);
                       EXPECT_LE(bound.bytes, bytes) << layout_text(layout);
                       EXPECT_LE(outer.seconds, bound.seconds * (1 + 1e-9)) << layout_text(layout);
                       EXPECT_LE(outer.bytes, bytes) << layout_text(layout);
                       EXPECT_GT(bound.seconds, 0.3 * seconds) << layout_text(layout);
                       tightness += bound.seconds / seconds;
                       ++checked;
                     });
      // Layouts that the bubble of the schedule alone excludes, before ranks are considered.
      bounds.layouts(group, schedules_of(space, group), {0}, 1e300, 0,
                     [&](const Layout& layout, const Bound& bound) {
                       if (random() % 4 != 0) return;
                       spec::Recipe one = recipe;
                       apply(layout, one);
                       EXPECT_LE(outer.seconds, bound.seconds * (1 + 1e-9)) << layout_text(layout);
                       const spec::Profile own = c.profile_of(one, system.chip);
                       EXPECT_LE(bound.seconds, predictor.step(one, own).step_seconds)
                           << layout_text(layout);
                     });
    }
  }
  EXPECT_GT(checked, 1500);
  std::printf("%lld layouts; bounds are %.1f%% of the predicted time on average\n",
              static_cast<long long>(checked), 100 * tightness / static_cast<double>(checked));
  EXPECT_GT(tightness, 0.85 * static_cast<double>(checked));
}

// The candidates include the fullest pipeline rank.
TEST(Bound, MemoryStagesHoldTheFullest) {
  std::mt19937_64 random(7);
  for (const char* model : {"llama3.1-405b", "deepseek-v3", "gpt3-175b"}) {
    const spec::Recipe recipe = recipe_of(model, {"batch.global=480"});
    std::vector<Layout> layouts = all_layouts(space_of(recipe, 480));
    std::shuffle(layouts.begin(), layouts.end(), random);
    layouts.resize(300);
    for (const Layout& layout : layouts) {
      spec::Recipe one = recipe;
      apply(layout, one);
      double most = 0;
      for (int64_t stage = 0; stage < layout.mesh.pp; ++stage) {
        const spec::MemoryMap map = spec::memory_map(one, profile(), stage);
        most = std::max(most, static_cast<double>(map.total_bytes()));
      }
      const MemoryPrediction memory =
          predict_memory(one, profile(), shipped().system("dgx-h100"), assumed_constants());
      EXPECT_EQ(memory.allocated_bytes, most) << model << ": " << layout_text(layout);
    }
  }
}

// Best-first search finds exactly the result of simulating every layout.
TEST(Search, EqualsSimulatingEveryLayout) {
  const Case cases[] = {{"llama2-70b", "dgx-h100", 24, "batch.global=24"},
                        {"mixtral-8x7b", "azure-nd-h100-v5", 16, "batch.global=16"},
                        {"llama3.1-8b", "dgx-b200", 12, "batch.global=24"},
                        {"llama3.1-8b", "dgx-h100", 12, "batch.global=24", "tutti", "cuda"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.model);
    const spec::Recipe recipe = c.recipe();
    const catalog::System& system = shipped().system(c.system);
    const Constants constants = assumed_constants();
    PipelineSimulator simulator;
    Predictor predictor(system, constants, simulator);
    std::vector<double> times;
    LayoutSpace space = space_of(recipe, c.chips);
    space.precisions = precisions_of(system.chip, recipe.precision);
    space.most_pipeline_zero = pipeline_zero(spec::find_profile(c.profile));
    int64_t too_large = 0;
    for (const Layout& layout : all_layouts(space)) {
      spec::Recipe one = recipe;
      apply(layout, one);
      const spec::Profile own = c.profile_of(one, system.chip);
      if (predict_memory(one, own, system, constants).fits) {
        times.push_back(predictor.step(one, own).step_seconds);
      } else {
        ++too_large;
      }
    }
    std::sort(times.begin(), times.end());
    ASSERT_GT(times.size(), 50U);
    ASSERT_GT(too_large, 0);
    for (const bool exhaustive : {false, true}) {
      SearchOptions options;
      options.exhaustive = exhaustive;
      const SearchResult result = search_layouts(recipe, spec::find_profile(c.profile), system,
                                                 constants, c.chips, options);
      ASSERT_EQ(result.best.size(), options.keep);
      for (size_t i = 0; i < options.keep; ++i) {
        EXPECT_EQ(result.best[i].step.step_seconds, times[i]) << i;
      }
      const SearchCounts& counts = result.counts;
      EXPECT_EQ(counts.considered, counts.indivisible + counts.judged);
      EXPECT_EQ(counts.judged, counts.memory + counts.bound + counts.played);
      EXPECT_LT(counts.played, static_cast<int64_t>(times.size()) / 2);
      EXPECT_TRUE(counts.complete);
    }
  }
}

// Two hundred trillion parameters on future machines are planned in seconds, and the numbers show
// what limits them.
TEST(Search, PlansBeyondTodayInSeconds) {
  const spec::Recipe recipe =
      recipe_of("moe-200t", {"batch.global=36000", "batch.micro=1", "batch.sequence=4096"});
  EXPECT_NEAR(static_cast<double>(spec::param_table(recipe.model).count()), 2e14, 0.01e14);
  const catalog::System& system = shipped().system("azure-nd-gb300-v6");
  const Constants constants = assumed_constants();
  SearchOptions options;
  options.keep = 1;
  const auto seconds_on = [&](int64_t chips, const char* breaks_first) {
    const std::clock_t begin = std::clock();
    SearchResult result = search_layouts(recipe, profile(), system, constants, chips, options);
    EXPECT_TRUE(result.counts.complete);
    RunTerms terms;
    terms.steps = 1e5;
    std::vector<Found>& list = result.best.empty() ? result.smallest : result.best;
    EXPECT_EQ(list.size(), 1U);
    const Choice choice = make_choice(system, nullptr, chips, list.at(0), terms);
    const std::vector<Pressure> limits = pressures(choice, terms);
    EXPECT_EQ(limits[0].key, breaks_first) << chips << ": " << pressure_sentence(limits);
    EXPECT_GT(limits[0].used, 0.99);
    return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  };
  if (!kMeasures) {
    seconds_on(100000, "memory");
    return;
  }
  // Processor time: 2, 1 and 3 s on one core of an EPYC 9005.
  EXPECT_LT(seconds_on(4608, "memory"), 10);
  EXPECT_LT(seconds_on(100000, "memory"), 10);
  EXPECT_LT(seconds_on(331776, "failures"), 20);
}

// A number of chips with 150 divisors, and a batch that each of them can get a part of.
TEST(Search, PlansAMillionChipsInSeconds) {
  const spec::Recipe recipe =
      recipe_of("llama3.1-405b", {"batch.global=1036800", "batch.micro=1", "batch.sequence=8192"});
  catalog::System system = shipped().system("dgx-b200");
  SearchOptions options;
  options.keep = 1;
  const std::clock_t begin = std::clock();
  const SearchResult result =
      search_layouts(recipe, profile(), system, assumed_constants(), 1036800, options);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_TRUE(result.counts.complete);
  ASSERT_EQ(result.best.size(), 1U);
  EXPECT_EQ(result.counts.judged,
            result.counts.memory + result.counts.bound + result.counts.played);
  if (kMeasures) {
    EXPECT_LT(seconds, 20);
  }
  std::printf("%lld layouts in %.2f s\n", static_cast<long long>(result.counts.judged), seconds);
}

// Counts the layouts of a group without creating them.
TEST(Search, CountsTheEnumeratedLayouts) {
  for (const bool keep_schedule : {false, true}) {
    const spec::Recipe recipe = recipe_of("gpt3-175b", {"batch.global=480"});
    LayoutSpace space = space_of(recipe, 480);
    space.kept.schedule = keep_schedule;
    for_each_group(space, [&](const Layout& group) {
      ASSERT_EQ(layouts_of(space, group), static_cast<int64_t>(schedules_of(space, group).size() *
                                                               zero_stages_of(space, group).size()))
          << layout_text(group);
    });
  }
}

// The target of docs/performance.md: every layout of GPT-3 on 1,024 chips within ten seconds.
TEST(Search, JudgesEveryLayoutOfGpt3OnAThousandChipsInTenSeconds) {
  const spec::Recipe recipe = recipe_of("gpt3-175b", {"batch.global=1536"});
  const std::clock_t begin = std::clock();
  const SearchResult result = search_layouts(recipe, profile(), shipped().system("dgx-h100"),
                                             assumed_constants(), 1024, {});
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_EQ(result.best.size(), 10U);
  EXPECT_GT(result.counts.judged, 500000);  // pipelines with ZeRO 0 and 1 (pipeline_zero)
  if (kMeasures) {
    EXPECT_LT(seconds, 10);
  }
  std::printf("%lld layouts in %.2f s\n", static_cast<long long>(result.counts.judged), seconds);
}

// Block-scaled formats are searched on chips that support them, and cost what predict states.
TEST(Search, TriesEveryPrecisionOfTheChip) {
  using enum spec::Precision;
  const auto of = [](const char* system, spec::Precision asked) {
    return precisions_of(shipped().system(system).chip, asked);
  };
  EXPECT_EQ(of("dgx-a100", bf16), std::vector<spec::Precision>{bf16});
  EXPECT_EQ(of("dgx-h100", bf16), (std::vector<spec::Precision>{bf16, fp8}));
  EXPECT_EQ(of("dgx-b200", bf16), (std::vector<spec::Precision>{bf16, fp8, mxfp8, fp4}));
  EXPECT_EQ(of("dgx-b200", f32), std::vector<spec::Precision>{f32});

  spec::Recipe recipe = recipe_of("llama3.1-8b", {"batch.global=32"});
  const catalog::System& system = shipped().system("dgx-b200");
  const Constants constants = assumed_constants();
  for (const spec::Precision precision : {mxfp8, fp4}) {
    SearchOptions options;
    options.precisions = {precision};
    const SearchResult result = search_layouts(recipe, profile(), system, constants, 8, options);
    ASSERT_FALSE(result.best.empty());
    EXPECT_EQ(result.best[0].layout.precision, precision);
    apply(result.best[0].layout, recipe);
    PipelineSimulator simulator;
    Predictor predictor(system, constants, simulator);
    EXPECT_EQ(predictor.step(recipe, profile()).step_seconds, result.best[0].step.step_seconds);
  }
}

// Tutti's own program is that of the recipe's device, and of the layout: which weights are kept as
// codes depends on the rank's other memory.
TEST(Search, PricesTheProgramOfTheDevice) {
  spec::Recipe recipe = recipe_of(
      "llama3.1-8b", {"batch.global=32", "batch.sequence=4096", "precision=fp8", "device=cuda"});
  const catalog::System& system = shipped().system("dgx-h100");
  const Constants constants = assumed_constants();
  SearchOptions options;
  options.keep = 3;
  options.precisions = {spec::Precision::fp8};
  keep_axis(options.kept, "pp");
  const SearchResult result =
      search_layouts(recipe, spec::tutti_profile(), system, constants, 8, options);
  ASSERT_EQ(result.best.size(), 3U);
  PipelineSimulator simulator;
  Predictor predictor(system, constants, simulator);
  for (const Found& found : result.best) {
    apply(found.layout, recipe);
    const spec::Profile own = profile_on(spec::tutti_profile(), recipe, system.chip);
    EXPECT_EQ(found.step.step_seconds, predictor.step(recipe, own).step_seconds);
    EXPECT_EQ(found.memory.bytes, predict_memory(recipe, own, system, constants).bytes);
    EXPECT_LT(found.step.step_seconds, predictor.step(recipe, spec::tutti_profile()).step_seconds);
  }
}

TEST(Search, ReportsTheSmallestIfNothingFits) {
  const spec::Recipe recipe = recipe_of("llama3.1-405b", {"batch.global=4"});
  const catalog::System& system = shipped().system("dgx-h100");
  const Constants constants = assumed_constants();
  const SearchResult result = search_layouts(recipe, profile(), system, constants, 16, {});
  EXPECT_TRUE(result.best.empty());
  ASSERT_EQ(result.smallest.size(), 1U);
  double least = 1e300;
  LayoutSpace space = space_of(recipe, 16);
  space.precisions = precisions_of(system.chip, recipe.precision);
  for (const Layout& layout : all_layouts(space)) {
    spec::Recipe one = recipe;
    apply(layout, one);
    least = std::min(least, predict_memory(one, profile(), system, constants).bytes);
  }
  EXPECT_EQ(result.smallest[0].memory.bytes, least);
}

TEST(Search, StopsWhenTheWatchReturnsFalse) {
  const spec::Recipe recipe = recipe_of("gpt3-175b", {"batch.global=768"});
  int64_t calls = 0;
  const SearchResult result =
      search_layouts(recipe, profile(), shipped().system("dgx-h100"), assumed_constants(), 512, {},
                     [&](const SearchCounts&) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
  EXPECT_FALSE(result.counts.complete);
}

TEST(Search, ExplainsWhyALayoutIsSlower) {
  StepPrediction a, b;
  a.step_seconds = 10;
  a.split.tp = 1;
  a.split.bubble = 2;
  b = a;
  b.split.tp = 1.31;
  b.split.bubble = 1.9;
  b.split.dp = 0.01;
  EXPECT_EQ(split_difference(a, b), "tensor-parallel communication +3.1%, pipeline bubble -1.0%");
}

}  // namespace
}  // namespace tutti::plan
