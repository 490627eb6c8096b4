#include "tutti/mlperf/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/mlperf/testing/test_support.h"
#include "tutti/telemetry/sinks/jsonl.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

// One machine's repeats of Llama 3.1 8B.
struct Machine {
  double slowdown = 1;  // of training
  double eval_seconds = 5;
  double noise = 0.002;  // relative, alternating between repeats
  int repeats = 6;
  double batch = 32;
  int64_t nodes = 1;
  double slow_first_seconds = 0;  // on top of the first stretch of training
  bool nan = false;               // in the last repeat
};

// Shifts everything logged after the first block_start by `seconds`.
void delay_first_stretch(SyntheticLog& log, double seconds) {
  for (size_t i = log.index("block_stop"); i < log.lines.size(); ++i) {
    log.lines[i].time_ms += seconds * 1e3;
  }
}

std::vector<Workload> logs_of(const Machine& machine) {
  MemoryFileSystem files;
  for (int i = 0; i < machine.repeats; ++i) {
    SyntheticRun run;
    run.seed = i;
    const double swing = i % 2 == 0 ? 1 + machine.noise : 1 - machine.noise;
    run.seconds_per_sample = 0.01 * machine.slowdown * swing;
    run.eval_seconds = machine.eval_seconds;
    run.global_batch = machine.batch;
    SyntheticLog log = good_log(run);
    if (machine.slow_first_seconds > 0) delay_first_stretch(log, machine.slow_first_seconds);
    if (machine.nan && i + 1 == machine.repeats) {
      log.at("eval_accuracy").value = std::numeric_limits<double>::quiet_NaN();
    }
    std::string text = log.text();
    // JSON has no NaN; programs in Python write it all the same.
    if (const size_t at = text.find("\"eval_accuracy\",\"value\":null"); at != std::string::npos) {
      text.replace(at, 28, "\"eval_accuracy\",\"value\":NaN");
    }
    write_file(files, fmt::format("results/sys/llama31_8b/result_{}.txt", i), text);
  }
  write_file(
      files, "systems/sys.json",
      fmt::format(R"({{"number_of_nodes": {}, "accelerators_per_node": 8}})", machine.nodes));
  return read_workloads(files, ".", benchmarks());
}

WorkloadValidation one(const Machine& result, const Machine& reference,
                       const ValidationOptions& options = {}) {
  const Validation all = validate(logs_of(result), logs_of(reference), options);
  EXPECT_EQ(all.workloads.size(), 1U);
  return all.workloads.at(0);
}

TEST(Validate, AnEqualMachinePasses) {
  const WorkloadValidation w = one({}, {});
  EXPECT_EQ(w.judgement, Judgement::pass) << w.reason;
  EXPECT_EQ(w.name, "Llama 3.1 8B x 8");
  EXPECT_EQ(w.result_repeats, 6);
  ASSERT_EQ(w.measures.size(), 2U);
  for (const Measure& m : w.measures) {
    EXPECT_NEAR(m.ratio.ratio, 1, 1e-9) << m.name;
    EXPECT_LT(m.ratio.low, 1);
    EXPECT_GT(m.ratio.high, 1);
  }
  EXPECT_NEAR(w.measures[0].result, 100, 0.5);
}

TEST(Validate, ThreePerCentSlowerPasses) {
  const WorkloadValidation w = one({.slowdown = 1 / 0.97}, {});
  EXPECT_EQ(w.judgement, Judgement::pass) << w.reason;
  EXPECT_NEAR(w.measures[0].ratio.ratio, 0.97, 1e-3);
  // A threshold above that, or one that the whole interval must reach, is another matter.
  EXPECT_EQ(one({.slowdown = 1 / 0.97}, {}, {.threshold = 0.98}).judgement, Judgement::short_of);
  EXPECT_EQ(one({.slowdown = 1 / 0.951, .noise = 0.01}, {}).judgement, Judgement::pass);
  EXPECT_EQ(one({.slowdown = 1 / 0.951, .noise = 0.01}, {}, {.strict = true}).judgement,
            Judgement::noisy);
}

TEST(Validate, SevenPercentSlowerFailsOnSteps) {
  const WorkloadValidation w = one({.slowdown = 1 / 0.93}, {});
  EXPECT_EQ(w.judgement, Judgement::short_of);
  EXPECT_NEAR(w.measures[0].ratio.ratio, 0.93, 1e-3);
  ASSERT_FALSE(w.suspects.empty());
  EXPECT_EQ(w.suspects[0].find("steady steps"), 0U) << w.suspects[0];
  EXPECT_EQ(w.suspects.size(), 1U);
}

TEST(Validate, FactorsMultiplyToTheRatioOfTimes) {
  const WorkloadValidation w =
      one({.slowdown = 1.04, .eval_seconds = 9, .slow_first_seconds = 40}, {});
  double product = 1;
  double shares = 0;
  for (const LostTime& lost : w.lost) {
    product *= lost.factor;
    shares += lost.share;
  }
  EXPECT_NEAR(product, 1 + shares, 1e-12);
  EXPECT_NEAR(product, 1 / w.measures[1].ratio.ratio, 1e-3);  // arithmetic and geometric means
}

TEST(Validate, SlowStartUpFailsOnTimeOnly) {
  const WorkloadValidation w = one({.slow_first_seconds = 200}, {});
  EXPECT_EQ(w.judgement, Judgement::short_of) << w.reason;
  EXPECT_NEAR(w.measures[0].ratio.ratio, 1, 1e-6);
  EXPECT_LT(w.measures[1].ratio.ratio, 0.92);
  ASSERT_FALSE(w.suspects.empty());
  EXPECT_EQ(w.suspects[0].find("start-up"), 0U) << w.suspects[0];
}

TEST(Validate, SlowEvaluationIsNamed) {
  const WorkloadValidation w = one({.eval_seconds = 20}, {});
  EXPECT_EQ(w.judgement, Judgement::short_of);
  ASSERT_FALSE(w.suspects.empty());
  EXPECT_EQ(w.suspects[0].find("evaluation"), 0U) << w.suspects[0];
}

TEST(Validate, NoiseIsNoVerdict) {
  const WorkloadValidation w = one({.noise = 0.12}, {});
  EXPECT_EQ(w.judgement, Judgement::noisy) << w.reason;
  EXPECT_GT(w.measures[0].result_variation, 0.1);
  ASSERT_FALSE(w.suspects.empty());
  EXPECT_NE(w.suspects.back().find("varies by"), std::string::npos) << w.suspects.back();
}

TEST(Validate, ANanInOneRunIsNoVerdict) {
  const WorkloadValidation w = one({.nan = true}, {});
  EXPECT_EQ(w.judgement, Judgement::invalid);
  EXPECT_EQ(w.result_repeats, 5);
  ASSERT_EQ(w.invalid.size(), 1U);
  EXPECT_NE(w.invalid[0].find("eval_accuracy is not finite"), std::string::npos) << w.invalid[0];
  // In the reference it only does not count.
  EXPECT_EQ(one({}, {.nan = true}).judgement, Judgement::pass);
}

TEST(Validate, FourRepeatsAreNotEnough) {
  EXPECT_EQ(one({.repeats = 4}, {}).judgement, Judgement::insufficient);
  const WorkloadValidation w = one({}, {.repeats = 4});
  EXPECT_EQ(w.judgement, Judgement::insufficient);
  EXPECT_NE(w.reason.find("in the reference"), std::string::npos) << w.reason;
  EXPECT_EQ(one({.repeats = 5}, {.repeats = 5}).judgement, Judgement::pass);
}

TEST(Validate, AnotherBatchIsIncomparable) {
  const WorkloadValidation w = one({.batch = 64}, {});
  EXPECT_EQ(w.judgement, Judgement::incomparable);
  ASSERT_EQ(w.unequal.size(), 1U);
  EXPECT_EQ(w.unequal[0], "global_batch_size: 64.0, in the reference 32.0");
  EXPECT_TRUE(w.measures.empty());
}

TEST(Validate, AnotherSizeHasNoReference) {
  const Validation all = validate(logs_of({.nodes = 2}), logs_of({}), {});
  ASSERT_EQ(all.workloads.size(), 2U);
  EXPECT_EQ(all.workloads[0].judgement, Judgement::no_reference);
  EXPECT_EQ(all.workloads[1].judgement, Judgement::not_measured);
  EXPECT_FALSE(all.all(Judgement::pass));
}

TEST(Validate, SaysItAsTextAndAsJson) {
  const Validation all = validate(logs_of({.slowdown = 1.1}), logs_of({}), {});
  const std::string text = format_validation(all);
  EXPECT_NE(text.find("falls short"), std::string::npos) << text;
  EXPECT_NE(text.find("look at steady steps"), std::string::npos) << text;
  const Json json = to_json(all);
  EXPECT_EQ(json["pass"], false);
  EXPECT_EQ(json["falls_short"], true);
  EXPECT_EQ(json["workloads"][0]["measures"][0]["measure"], "throughput");
  EXPECT_EQ(json["workloads"][0]["measures"].size(), 2U);
}

// The interval of the ratio holds the true ratio as often as it says: few repeats, unequal noise.
TEST(RatioInterval, IntervalsHaveNominalCoverage) {
  constexpr int kDraws = 1000;
  int covered = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const uint64_t key = stream_key(20'261'120, "coverage") + static_cast<uint64_t>(draw);
    float z[11];
    fill_normal(z, 11, key, 0, 0, 1);
    std::vector<double> a(5);
    std::vector<double> b(6);
    for (size_t i = 0; i < a.size(); ++i) a[i] = 0.95 * std::exp(0.02 * static_cast<double>(z[i]));
    for (size_t i = 0; i < b.size(); ++i) b[i] = std::exp(0.012 * static_cast<double>(z[5 + i]));
    const RatioInterval interval = ratio_interval(a, b, 0.95);
    EXPECT_LE(interval.low, interval.ratio);
    EXPECT_GE(interval.high, interval.ratio);
    if (interval.low <= 0.95 && 0.95 <= interval.high) ++covered;
  }
  EXPECT_GE(covered, 930);
  EXPECT_LE(covered, 970);
  RecordProperty("covered", covered);
}

TEST(RatioInterval, OfEqualValuesIsAPoint) {
  const RatioInterval interval = ratio_interval({3, 3, 3}, {2, 2}, 0.95);
  EXPECT_NEAR(interval.ratio, 1.5, 1e-12);
  EXPECT_EQ(interval.low, interval.ratio);
  EXPECT_EQ(interval.high, interval.ratio);
}

// Welch's t of ln a = {0, 1, 2}, ln b = {0, 0.5}: means 1 and 0.25, squared errors 1/3 and 1/16,
// freedom (19/48)^2 / ((1/3)^2 / 2 + (1/16)^2), quantile by student_quantile.
TEST(RatioInterval, IsWelchsOfLogarithms) {
  const RatioInterval interval =
      ratio_interval({1, std::exp(1.0), std::exp(2.0)}, {1, std::exp(0.5)}, 0.95);
  const double error = 1.0 / 3 + 1.0 / 16;
  const double freedom = error * error / (1.0 / 18 + 1.0 / 256);
  const double width = student_quantile(0.975, freedom) * std::sqrt(error);
  EXPECT_NEAR(std::log(interval.ratio), 0.75, 1e-12);
  EXPECT_NEAR(std::log(interval.high), 0.75 + width, 1e-9);
  EXPECT_NEAR(std::log(interval.low), 0.75 - width, 1e-9);
}

TEST(SplitTime, PartsAddUp) {
  // Rates: 5 (start), 10, 10, 10, 5 (tail); an evaluation of 3 s, and 2 s that were not logged.
  const std::vector<Stretch> stretches = {{false, 0, 2, 10}, {false, 2, 3, 10}, {true, 3, 6, 0},
                                          {false, 6, 7, 10}, {false, 7, 8, 10}, {false, 8, 10, 10}};
  const TimeParts parts = split_time(stretches, 12);
  EXPECT_DOUBLE_EQ(parts.steady, 5);
  EXPECT_DOUBLE_EQ(parts.start, 1);
  EXPECT_DOUBLE_EQ(parts.tail, 1);
  EXPECT_DOUBLE_EQ(parts.evaluation, 3);
  EXPECT_DOUBLE_EQ(parts.stalls, 2);
  EXPECT_DOUBLE_EQ(parts.sum(), 12);
}

// Folders of Tutti's own runs.
struct RecordedRun {
  double step_seconds = 0.5;
  double wait_seconds = 0;
  int slow_steps = 0;  // twice as long
  int skipped_step = 0;
  bool finished = true;
  int64_t batch = 8;
};

void write_run(FileSystem& files, const std::string& folder, const RecordedRun& run) {
  files.create_directories(folder);
  write_file(
      files, folder + "/recipe.yaml",
      fmt::format("precision: \"bf16\"\nbatch:\n  global: {}\n  micro: 4\ntrain:\n  seed: 1\n",
                  run.batch));
  telemetry::JsonLinesSink sink(files, folder + "/events.jsonl");
  double now = 1.7e9;
  sink.write({now - 60, telemetry::Message{telemetry::Level::info, "caches cleared"}});
  telemetry::RunStarted started;
  started.parameters = 35'000'000;
  started.tokens_per_step = 1000;
  sink.write({now, started});
  for (int i = 1; i <= 40; ++i) {
    telemetry::StepDone step;
    step.step = i;
    step.loss = 3;
    step.gradient_norm = 1;
    step.step_seconds = run.step_seconds * (i > 20 && i <= 20 + run.slow_steps ? 2 : 1);
    step.data_wait_seconds = run.wait_seconds;
    step.skipped = i == run.skipped_step;
    now += step.step_seconds;
    if (step.skipped) sink.write({now, telemetry::NonFinite{i, "head.weight", 1}});
    sink.write({now, step});
  }
  if (run.finished) sink.write({now, telemetry::RunFinished{"steps_done", Json::object()}});
}

std::vector<Workload> runs_of(const RecordedRun& run, int repeats = 5) {
  MemoryFileSystem files;
  for (int i = 0; i < repeats; ++i) {
    RecordedRun own = run;
    own.step_seconds *= 1 + 0.001 * i;
    if (i > 0) own.skipped_step = 0;
    write_run(files, fmt::format("runs/{}", i), own);
  }
  return read_workloads(files, "runs", benchmarks());
}

TEST(ValidateRuns, EqualRunsPass) {
  const auto runs = runs_of({});
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].name(), "35 M parameters x 1");
  EXPECT_NEAR(runs[0].repeats[0].steady_rate, 2000, 0.1);
  const Validation all = validate(runs, runs_of({}), {});
  EXPECT_TRUE(all.all(Judgement::pass)) << format_validation(all);
}

TEST(ValidateRuns, StragglersAreTheTail) {
  const Validation all = validate(runs_of({.slow_steps = 6}), runs_of({}), {});
  const WorkloadValidation& w = all.workloads.at(0);
  EXPECT_EQ(w.judgement, Judgement::short_of);
  EXPECT_NEAR(w.measures[0].ratio.ratio, 1, 1e-3);
  EXPECT_NEAR(w.measures[1].ratio.ratio, 40.0 / 46, 1e-3);
  ASSERT_EQ(w.suspects.size(), 1U) << format_validation(all);
  EXPECT_EQ(w.suspects[0].find("step-time tail"), 0U);
}

TEST(ValidateRuns, WaitingForDataIsNamed) {
  const Validation all =
      validate(runs_of({.step_seconds = 0.6, .wait_seconds = 0.1}), runs_of({}), {});
  const WorkloadValidation& w = all.workloads.at(0);
  EXPECT_EQ(w.judgement, Judgement::short_of);
  ASSERT_EQ(w.suspects.size(), 2U) << format_validation(all);
  EXPECT_EQ(w.suspects[1].find("waiting for data"), 0U);
}

TEST(ValidateRuns, SkippedStepsAndUnfinishedRunsDoNotCount) {
  const Validation skipped = validate(runs_of({.skipped_step = 7}, 6), runs_of({}), {});
  EXPECT_EQ(skipped.workloads.at(0).judgement, Judgement::invalid);
  ASSERT_EQ(skipped.workloads.at(0).invalid.size(), 1U);
  EXPECT_NE(skipped.workloads.at(0).invalid[0].find("step 7"), std::string::npos);
  const Validation cut = validate(runs_of({.finished = false}), runs_of({}), {});
  EXPECT_EQ(cut.workloads.at(0).judgement, Judgement::invalid);
}

TEST(ValidateRuns, AResumedRunDoesNotCount) {
  MemoryFileSystem files;
  write_run(files, "run", {});
  telemetry::JsonLinesSink sink(files, "run/events.jsonl");
  telemetry::RunStarted resumed;
  resumed.first_step = 40;
  sink.write({1.8e9, resumed});
  sink.write({1.8e9, telemetry::RunFinished{"steps_done", Json::object()}});
  EXPECT_EQ(read_workloads(files, "run", benchmarks()).at(0).repeats.at(0).invalid,
            "it was interrupted and resumed");
}

TEST(ValidateRuns, AnotherBatchIsIncomparableButNotAnotherSeed) {
  const Validation all = validate(runs_of({.batch = 16}), runs_of({}), {});
  EXPECT_EQ(all.workloads.at(0).judgement, Judgement::incomparable);
  EXPECT_EQ(all.workloads.at(0).unequal.at(0), "batch.global: 16, in the reference 8");
}

TEST(ValidateRuns, InterruptedAttemptsAreNotCounted) {
  MemoryFileSystem files;
  for (int i = 0; i < 5; ++i) write_run(files, fmt::format("set/runs/run_{}", i), {});
  write_run(files, "set/interrupted/run_2-1", {.finished = false});
  write_file(files, "set/runs.json", "{}");
  const auto workloads = read_workloads(files, "set", benchmarks());
  ASSERT_EQ(workloads.size(), 1U);
  EXPECT_EQ(workloads[0].repeats.size(), 5U);
}

TEST(ValidateRuns, AFolderWithoutAnyIsAnError) {
  MemoryFileSystem files;
  files.create_directories("empty");
  EXPECT_THROW(read_workloads(files, "empty", benchmarks()), Error);
  EXPECT_THROW(read_workloads(files, "nowhere", benchmarks()), Error);
}

}  // namespace
}  // namespace tutti::mlperf
