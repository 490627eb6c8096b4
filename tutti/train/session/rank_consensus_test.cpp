#include "tutti/train/session/rank_consensus.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tutti/base/error.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/spec/mesh/fit_mesh.h"
#include "tutti/train/session/fault.h"
#include "tutti/train/testing/session_fixture.h"
#include "tutti/train/testing/tensor_parallel_recipes.h"

namespace tutti::train {
namespace {

using testing::SessionTest;

std::vector<StepReport> own_seconds(const std::vector<double>& seconds) {
  std::vector<StepReport> reports(seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) reports[i].own_seconds = seconds[i];
  return reports;
}

TEST(RankConsensus, AllRanksReachTheSameDecision) {
  comm::run_threads({.dp = 2, .cp = 2}, [](comm::World& world, engine::Stream&) {
    const RankConsensus consensus(&world, 1);
    StepReport mine;
    mine.useful = 100 + world.rank();
    mine.squared_rows = int64_t{1} << 40;
    mine.stop_signal = world.rank() == 3 ? 15 : 0;
    mine.save_is_due = world.rank() == 1 ? 1 : 0;  // not rank 0, so it does not count
    const Agreed agreed = consensus.agree(consensus.exchange(mine));
    EXPECT_EQ(agreed.stop_signal, 15);
    EXPECT_FALSE(agreed.save_is_due);
    // Ranks 0 and 2 represent their dp coordinate.
    EXPECT_EQ(agreed.facts.useful, 100 + 102);
    EXPECT_EQ(agreed.facts.squared_rows, int64_t{1} << 41);
    EXPECT_EQ(consensus.of_leader(world.rank() + 7), 7);
  });
}

TEST(SlowRanks, AreNamedOnceAfterEnoughSteps) {
  SlowRanks slow;
  for (int64_t step = 1; step <= 3 * SlowRanks::kSteps; ++step) {
    const auto named = slow.note(own_seconds({1, 1.1, 1.8, 0.9}));
    ASSERT_EQ(named.size(), step == SlowRanks::kSteps ? 1U : 0U) << step;
    if (!named.empty()) {
      EXPECT_EQ(named[0].first, 2);
      EXPECT_NEAR(named[0].second, 1.8, 1e-12);
    }
  }
  // One step like the others resets the count.
  slow.note(own_seconds({1, 1, 1, 1}));
  for (int64_t step = 1; step < SlowRanks::kSteps; ++step) {
    EXPECT_TRUE(slow.note(own_seconds({1, 1, 2, 1})).empty());
  }
  EXPECT_EQ(slow.note(own_seconds({1, 1, 2, 1})).size(), 1U);
}

TEST(SlowRanks, TheSlowerOfTwoIsNamed) {
  SlowRanks slow;
  std::vector<std::pair<int64_t, double>> named;
  for (int64_t step = 0; step < SlowRanks::kSteps; ++step) named = slow.note(own_seconds({2, 1}));
  ASSERT_EQ(named.size(), 1U);
  EXPECT_EQ(named[0].first, 0);
}

TEST(DamagedReplicas, TheMinorityIsNamed) {
  EXPECT_TRUE(damaged_replicas({.dp = 3}, {5, 5, 5}).empty());
  EXPECT_EQ(damaged_replicas({.dp = 3}, {5, 6, 5}), (std::vector<int64_t>{1}));
  // Of two, both are named.
  EXPECT_EQ(damaged_replicas({.dp = 2}, {5, 6}), (std::vector<int64_t>{0, 1}));
  // Tensor parallel ranks hold different parameters: ranks 0, 2, 4 and ranks 1, 3, 5.
  EXPECT_TRUE(damaged_replicas({.dp = 3, .tp = 2}, {1, 2, 1, 2, 1, 2}).empty());
  EXPECT_EQ(damaged_replicas({.dp = 3, .tp = 2}, {1, 2, 1, 2, 1, 7}), (std::vector<int64_t>{5}));
}

TEST(Fault, ParsesRankStepAndAction) {
  const std::vector<Fault> faults =
      parse_faults("rank=2 step=7 at=reduce do=stop generation=0;rank=1 do=kill generation=2");
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_EQ(faults[1].rank, 1);
  EXPECT_EQ(faults[1].generation, 2U);
  const Fault& fault = faults.front();
  EXPECT_EQ(fault.rank, 2);
  EXPECT_EQ(fault.kind, FaultKind::stop);
  EXPECT_TRUE(fault.due(7, "reduce"));
  EXPECT_FALSE(fault.due(8, "reduce"));
  EXPECT_FALSE(fault.due(7, "forward"));
  EXPECT_THROW(parse_faults("rank=x"), Error);
  EXPECT_THROW(parse_faults("do=dance"), Error);
  EXPECT_THROW(parse_faults("rank=1;when=now"), Error);
}

// Sessions whose ranks are threads.
class RanksSessionTest : public SessionTest {
 protected:
  std::vector<Summary> run_on(const spec::Mesh& mesh, const std::string& folder,
                              int64_t stop_after_step = 0) {
    spec::Recipe recipe = recipe_;
    recipe.parallel = mesh;
    recipe.batch.micro = recipe.batch.global / mesh.dp;
    events_.clear();
    std::vector<Summary> summaries(static_cast<size_t>(mesh.world()));
    comm::run_threads(mesh, [&](comm::World& world, engine::Stream&) {
      telemetry::Telemetry telemetry;
      if (world.rank() == 0) telemetry.add(std::make_unique<testing::Collector>(events_));
      SessionOptions options;
      options.run_folder = folder;
      options.measure_peak = false;
      options.stop_after_step = stop_after_step;
      options.world = &world;
      options.check_replicas_every = check_replicas_every_;
      options.trainer = trainer_;
      summaries[static_cast<size_t>(world.rank())] =
          run_session(recipe, options, files_, telemetry);
    });
    return summaries;
  }

  // What ends each rank.
  std::vector<std::string> errors_on(const spec::Mesh& mesh, const std::string& folder) {
    std::vector<std::string> errors(static_cast<size_t>(mesh.world()));
    spec::Recipe recipe = recipe_;
    recipe.parallel = mesh;
    recipe.batch.micro = recipe.batch.global / mesh.dp;
    comm::run_threads(mesh, [&](comm::World& world, engine::Stream&) {
      telemetry::Telemetry telemetry;
      SessionOptions options;
      options.run_folder = folder;
      options.measure_peak = false;
      options.world = &world;
      try {
        run_session(recipe, options, files_, telemetry);
      } catch (const Error& error) {
        errors[static_cast<size_t>(world.rank())] = error.what();
      }
    });
    return errors;
  }

  int64_t check_replicas_every_ = 5;
};

TEST_F(RanksSessionTest, OneRunOnAnyRanksAndFromOneToAnother) {
  recipe_.batch.global = 6;
  recipe_.batch.micro = 6;
  run("alone");
  const std::vector<double> expected = losses();
  const auto evaluations = events<telemetry::EvaluationDone>();
  ASSERT_FALSE(evaluations.empty());
  const auto check = [&](size_t first_step) {
    const std::vector<double> got = losses();
    ASSERT_EQ(got.size(), expected.size() - first_step);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i] / expected[first_step + i], 1, 1e-5) << "step " << first_step + i + 1;
    }
    const auto evaluated = events<telemetry::EvaluationDone>();
    ASSERT_FALSE(evaluated.empty());
    EXPECT_EQ(evaluated.back().tokens, evaluations.back().tokens);
    EXPECT_NEAR(evaluated.back().loss / evaluations.back().loss, 1, 1e-5);
  };
  const auto summaries = run_on({.dp = 3, .zero = 1}, "three");
  check(0);
  for (const Summary& summary : summaries) {
    EXPECT_EQ(summary.final_loss, summaries[0].final_loss);
    EXPECT_EQ(summary.validation_loss, summaries[0].validation_loss);
    EXPECT_EQ(summary.tokens, summaries[0].tokens);
    EXPECT_EQ(summary.exit_code, 0);
    EXPECT_EQ(summary.ranks.size(), 3U);
  }
  EXPECT_EQ(summaries[0].mesh, "dp 3 zero 1");

  for (const Summary& summary : run_on({.dp = 3, .zero = 1}, "moved", 10)) {
    EXPECT_EQ(summary.outcome, Outcome::stopped);
    EXPECT_EQ(summary.steps, 10);
  }
  run_on({.dp = 2}, "moved");
  check(10);
}

// Steps begin before the results of those before them are known: the same run, which evaluates,
// saves, stops and resumes where it would.
TEST_F(RanksSessionTest, EnqueuedSessionsEqualWaitingOnes) {
  recipe_.batch.global = 4;
  recipe_.train.steps = 14;
  recipe_.checkpoint.every_steps = 6;
  check_replicas_every_ = 0;
  const spec::Mesh mesh = {.dp = 2, .zero = 1};
  run_on(mesh, "waits");
  const std::vector<double> expected = losses();
  const auto evaluations = events<telemetry::EvaluationDone>().size();
  trainer_.enqueue_steps = true;
  for (const Summary& summary : run_on(mesh, "ahead")) EXPECT_EQ(summary.steps, 14);
  EXPECT_EQ(losses(), expected);
  EXPECT_EQ(events<telemetry::EvaluationDone>().size(), evaluations);
  EXPECT_EQ(parameters("ahead"), parameters("waits"));
  for (const Summary& summary : run_on(mesh, "parts", 9)) EXPECT_EQ(summary.steps, 9);
  run_on(mesh, "parts");
  EXPECT_EQ(losses(), std::vector<double>(expected.begin() + 9, expected.end()));
  EXPECT_EQ(parameters("parts"), parameters("waits"));
}

// One rank says when, while each has a step under way whose result it does not know.
TEST_F(RanksSessionTest, EnqueuedSessionsStopAtOneStep) {
  recipe_.batch.global = 4;
  recipe_.train.steps = 1000000;
  recipe_.evaluate.every_steps = 1000000;
  recipe_.checkpoint.every_steps = 0;
  check_replicas_every_ = 0;
  trainer_.enqueue_steps = true;
  recipe_.run.budget.hours = 0.3 / 3600;
  const std::vector<Summary> summaries = run_on({.dp = 2}, "budget");
  for (const Summary& summary : summaries) {
    EXPECT_EQ(summary.outcome, Outcome::over_budget);
    EXPECT_EQ(summary.steps, summaries.front().steps);
    EXPECT_LT(summary.steps, 1000000);
  }
}

// With two replicas, with shards that no other rank has, and without any replica.
TEST_F(RanksSessionTest, FlippedBitsAreFoundByTheirRank) {
  recipe_.model = testing::divided_gpt().model;
  recipe_.batch.global = 4;
  const spec::Mesh meshes[] = {{.dp = 2},
                               {.dp = 2, .zero = 1},
                               {.dp = 2, .zero = 2},
                               {.dp = 2, .zero = 3},
                               {.tp = 2},
                               {.pp = 2},
                               {.dp = 2, .tp = 2, .zero = 1}};
  const std::pair<const char*, const char*> states[] = {
      {"param", "parameters"}, {"adamw.m", "first moments"}, {"adamw.v", "second moments"}};
  int64_t run = 0;
  for (const spec::Mesh& mesh : meshes) {
    for (const auto& [in, name] : states) {
      // Between two updates, and between the last update and a checkpoint.
      for (const char* at : {"forward", "save"}) {
        const int64_t rank = run % mesh.world();
        const std::string fault = fmt::format("rank={} step=4 at={} do=flip in={}", rank, at, in);
        SCOPED_TRACE(spec::mesh_text(mesh) + ": " + fault);
        recipe_.checkpoint.every_steps = 4;
        ::setenv("TUTTI_FAULT", fault.c_str(), 1);
        const std::vector<std::string> errors = errors_on(mesh, fmt::format("flip-{}", run++));
        ::unsetenv("TUTTI_FAULT");
        const std::string found =
            fmt::format("in the memory of rank {} a bit has flipped: its {} are", rank, name);
        for (const std::string& error : errors) {
          EXPECT_NE(error.find(found), std::string::npos) << error;
        }
        EXPECT_FALSE(
            files_.exists(fmt::format("flip-{}/checkpoints/step-00000004/manifest.json", run - 1)));
      }
    }
  }
}

// Weights beside masters, selection biases that move by themselves: all of it is accounted for.
TEST_F(RanksSessionTest, NoFalseAlarmsWithoutFlips) {
  recipe_.model = testing::divided_gpt().model;
  recipe_.model.moe = testing::mixed_moe_recipe().model.moe;
  recipe_.model.moe.experts = 6;
  recipe_.precision = spec::Precision::bf16;
  recipe_.batch.global = 4;
  recipe_.train.steps = 6;
  for (const spec::Mesh& mesh :
       {spec::Mesh{.dp = 2}, spec::Mesh{.dp = 2, .zero = 1}, spec::Mesh{.dp = 2, .zero = 3},
        spec::Mesh{.dp = 2, .ep = 2, .zero = 2}, spec::Mesh{.pp = 2}}) {
    SCOPED_TRACE(spec::mesh_text(mesh));
    for (const Summary& summary : run_on(mesh, "quiet " + spec::mesh_text(mesh))) {
      EXPECT_EQ(summary.steps, 6);
    }
  }
}

TEST_F(RanksSessionTest, ErrorsOfOneRankEndAllRanks) {
  ::setenv("TUTTI_FAULT", "rank=1 step=3 at=backward do=throw", 1);
  const std::vector<std::string> errors = errors_on({.dp = 2}, "run");
  ::unsetenv("TUTTI_FAULT");
  EXPECT_NE(errors[0].find("aborted by rank 1"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("in step 3, backward of micro-batch 0"), std::string::npos) << errors[0];
  EXPECT_NE(errors[1].find("TUTTI_FAULT asked for"), std::string::npos) << errors[1];
}

}  // namespace
}  // namespace tutti::train
