#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/mlperf/compare_page.h"
#include "tutti/mlperf/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

struct ComparedMachine {
  double seconds_per_sample = 0.01;
  double eval_seconds = 5;
  int intervals = 15;
  int64_t nodes = 1;
  int64_t seed = 0;
};

Score score_of(MemoryFileSystem& files, const std::string& folder, const ComparedMachine& machine) {
  for (int i = 0; i < 10; ++i) {
    SyntheticRun run;
    run.seed = machine.seed + i;
    run.seconds_per_sample = machine.seconds_per_sample;
    run.eval_seconds = machine.eval_seconds;
    run.samples_to_target = (machine.intervals + i % 2) * 12'288;
    write_file(files, fmt::format("{}/llama31_8b/result_{}.txt", folder, i), good_log(run).text());
  }
  write_file(files, folder + "/system.json",
             fmt::format(R"({{"submitter": "{}", "number_of_nodes": {}, "accelerators_per_node": 8,
                              "accelerator_model_name": "X1"}})",
                         folder, machine.nodes));
  return score_result(files, find_results(files, folder)[0], find_ruleset("5.1.0"), benchmarks());
}

Comparison compare(const ComparedMachine& a, const ComparedMachine& b) {
  MemoryFileSystem files;
  return compare_results(score_of(files, "a", a), score_of(files, "b", b));
}

void expect_exact(const Comparison& c) {
  EXPECT_NEAR(c.factors.product(), c.ratio, 1e-12 * c.ratio);
  EXPECT_DOUBLE_EQ(c.ratio, c.a.minutes / c.b.minutes);
}

Run run_of(const SyntheticLog& log) {
  RunReader reader;
  read_log_text(log.text(), {[&](const Record& record) {
                               reader.record(record);
                               return true;
                             },
                             {}});
  return reader.take();
}

TEST(Timeline, PartsOfARun) {
  const Timeline line = timeline_of(run_of(good_log({.samples_to_target = 3 * 12'288})), 1);
  EXPECT_EQ(line.evaluations, 3);
  EXPECT_EQ(line.samples, 3 * 12'288);
  EXPECT_NEAR(line.steady_samples_per_second, 100, 0.01);
  EXPECT_NEAR(line.evaluation_seconds, 15, 0.01);
  EXPECT_NEAR(line.startup_seconds, 0, 0.05);
  EXPECT_DOUBLE_EQ(line.training_seconds + line.evaluation_seconds + line.startup_seconds,
                   line.total_seconds);
  ASSERT_EQ(line.stretches.size(), 6U);
  EXPECT_TRUE(line.stretches[1].evaluation);
}

TEST(Timeline, TheFinalEvaluationCountsEvenIfItEndsAfterTheRun) {
  SyntheticLog log = good_log({.samples_to_target = 3 * 12'288});
  std::swap(log.lines[log.lines.size() - 2], log.lines.back());
  log.lines.back().time_ms += 9e3;
  const Timeline line = timeline_of(run_of(log), 1);
  EXPECT_EQ(line.evaluations, 3);
  EXPECT_EQ(line.samples, 3 * 12'288);
  EXPECT_NEAR(line.evaluation_seconds, 15, 0.01);
  // One that begins after the end is none of the run's.
  log.lines.push_back(log.lines[log.index("eval_accuracy")]);
  log.lines.back().time_ms = log.lines[log.index("run_stop")].time_ms + 1;
  EXPECT_EQ(timeline_of(run_of(log), 1).evaluations, 3);
}

// As NeMo logs 405B: a first block of 270 steps, then short ones, whose ends hold more than steps.
SyntheticLog large_log(double step_seconds, double block_overhead_seconds, int logged_every) {
  SyntheticRun run;
  run.benchmark = "llama31_405b";
  run.global_batch = 1024;
  SyntheticLog log = good_log(run);
  log.lines.resize(log.index("run_start") + 1);
  double time_ms = log.lines.back().time_ms;
  const auto add = [&](const std::string& key, Json value, Json metadata) {
    metadata["file"] = "train.py";
    metadata["lineno"] = 1;
    log.lines.push_back({key, std::move(value), std::move(metadata), time_ms});
  };
  int64_t step = 0;
  for (const int64_t steps : {270, 18, 18, 18}) {
    add("block_start", nullptr, {{"samples_count", steps * 1024}});
    for (int64_t i = 0; i < steps; ++i) {
      time_ms += (i == 0 ? 1.1 : 1) * step_seconds * 1e3;
      ++step;
      if (logged_every == 0 || step % logged_every != 0) continue;
      add("tracked_stats", {{"train_step_time", step_seconds}},
          {{"step", step - 1}, {"samples_count", step * 1024}});
    }
    time_ms += block_overhead_seconds * 1e3;
    add("block_stop", nullptr, {{"samples_count", steps * 1024}});
    add("eval_start", nullptr, {{"samples_count", step * 1024}});
    time_ms += 3e3;
    add("eval_accuracy", step == 324 ? 5.59 : 5.7, {{"samples_count", step * 1024}});
    add("eval_stop", nullptr, {{"samples_count", step * 1024}});
  }
  add("run_stop", nullptr, {{"status", "success"}});
  return log;
}

TEST(Timeline, LoggedStepsDefineTheSteadyRate) {
  for (const int every : {1, 7}) {
    const Timeline line = timeline_of(run_of(large_log(2.0, 5, every)), 1);
    EXPECT_TRUE(line.steps_timed);
    EXPECT_NEAR(line.step_seconds, 2.0, 1e-6) << every;
    EXPECT_NEAR(line.steady_samples_per_second, 512, 1e-3);
    // Four first steps of 0.2 s more and four block ends of 5 s.
    EXPECT_NEAR(line.startup_seconds, 20.8, 0.1) << every;
  }
}

// The short stretches hold 5 s that are not steps; they are 54 of 324 steps.
TEST(Timeline, StretchesAreWeightedBySamples) {
  const Timeline line = timeline_of(run_of(large_log(2.0, 5, 0)), 1);
  EXPECT_FALSE(line.steps_timed);
  EXPECT_TRUE(line.startup_hidden);
  EXPECT_NEAR(line.steady_samples_per_second, 270 * 1024 / (270.1 * 2 + 5), 1);
  EXPECT_GE(line.startup_seconds, 0);
  EXPECT_FALSE(timeline_of(run_of(good_log({.samples_to_target = 3 * 12'288})), 1).startup_hidden);
}

// As in fine-tuning, whose first evaluations are skipped: half of the samples come in a stretch
// that starts up.
TEST(Timeline, LongFirstStretchesAreExcluded) {
  SyntheticLog log = good_log({.samples_to_target = 6 * 12'288});
  for (const char* key : {"eval_start", "eval_accuracy", "eval_stop", "block_stop"}) {
    log.erase(key);
    log.erase(key);
  }
  log.erase("block_start", 1);
  log.erase("block_start", 1);
  for (size_t i = log.index("block_stop"); i < log.lines.size(); ++i) log.lines[i].time_ms += 20e3;
  const Timeline line = timeline_of(run_of(log), 1);
  EXPECT_EQ(line.stretches[0].samples, 3 * 12'288);
  EXPECT_FALSE(line.startup_hidden);
  EXPECT_NEAR(line.steady_samples_per_second, 100, 0.1);
  EXPECT_NEAR(line.startup_seconds, 30, 0.1);  // 20 s, and two evaluations that were not logged
}

TEST(Compare, SameChipAtTwoScalesIsRecognized) {
  MemoryFileSystem files;
  const Score small = score_of(files, "v5.1/a", {.eval_seconds = 0});
  const Score large =
      score_of(files, "v5.1/b", {.seconds_per_sample = 0.0055, .eval_seconds = 0, .nodes = 2});
  const Comparison c = compare_results(small, large);
  expect_exact(c);
  EXPECT_NE(c.verdict.find("on the same chip, each of 16 does 90.9% of the steady throughput of "
                           "each of 8"),
            std::string::npos)
      << c.verdict;
  EXPECT_EQ(c.verdict.find("faster accelerators"), std::string::npos) << c.verdict;
  // Opposing factors are reported.
  EXPECT_NE(c.verdict.find("against that work throughput per accelerator (10.0%)"),
            std::string::npos)
      << c.verdict;
  EXPECT_EQ(c.a.name, "v5.1 v5.1/a (8 X1)");
}

TEST(Compare, ThreeRunsAgainstThreeAreTooFewToTest) {
  MemoryFileSystem files;
  const auto three = [&](const std::string& folder, int intervals) {
    for (int i = 0; i < 3; ++i) {
      SyntheticRun run;
      run.seed = i;
      run.samples_to_target = (intervals + i) * 12'288.0;
      write_file(files, fmt::format("{}/llama31_8b/result_{}.txt", folder, i),
                 good_log(run).text());
    }
    return score_result(files, find_results(files, folder)[0], find_ruleset("5.1.0"), benchmarks());
  };
  const Comparison c = compare_results(three("a", 30), three("b", 15));
  EXPECT_DOUBLE_EQ(c.minutes_order.least_chance, 0.1);  // 2 of 20 labellings
  EXPECT_NE(c.verdict.find("too few runs to test"), std::string::npos) << c.verdict;
  EXPECT_EQ(c.verdict.find("not excluded"), std::string::npos) << c.verdict;
  EXPECT_NE(format_comparison(c).find("too few runs to test"), std::string::npos);
}

TEST(Compare, APublishedRowCountsFromStartToEnd) {
  MemoryFileSystem files;
  const ComparedSide logs = side_of(score_of(files, "v5.1/a", {.eval_seconds = 20}));
  catalog::PublishedResult row;
  row.round = "v5.1";
  row.benchmark = "llama31_8b";
  row.submitter = "B";
  row.accelerator = "X1";
  row.accelerators = 16;
  row.minutes = row.raw_minutes = 20;
  row.samples_to_target = 190'464;
  const Comparison c = compare_sides(logs, side_of(row));
  expect_exact(c);
  EXPECT_FALSE(c.order_tested);
  EXPECT_EQ(c.factors.evaluation, 1);
  EXPECT_EQ(c.factors.startup, 1);
  EXPECT_NEAR(c.b.samples_per_second, 190'464 / 1200.0, 1e-9);
  EXPECT_NE(c.verdict.find("cannot be tested"), std::string::npos) << c.verdict;
  EXPECT_TRUE(to_json(c)["minutes_order"].is_null());
  EXPECT_EQ(report::render(comparison_page(c)).find("Where the time went"), std::string::npos);
  row.benchmark = "gpt3";
  EXPECT_THROW(compare_sides(logs, side_of(row)), Error);
}

TEST(Compare, NamesOfOneChip) {
  const auto same = [](const char* a, const char* b) {
    ComparedResult x;
    ComparedResult y;
    x.chip = a;
    y.chip = b;
    return same_chip(x, y);
  };
  EXPECT_TRUE(same("NVIDIA Blackwell GPU (GB200)", "Blackwell GPU (GB200)"));
  EXPECT_TRUE(same("GB200", "Blackwell GPU (GB200)"));
  EXPECT_FALSE(same("H100-SXM5-80GB", "H200-SXM5-141GB"));
  EXPECT_FALSE(same("", "H100"));
}

TEST(Compare, OneCauseIsOneFactor) {
  const ComparedMachine base{.eval_seconds = 0};
  const Comparison faster = compare(base, {.seconds_per_sample = 0.005, .eval_seconds = 0});
  expect_exact(faster);
  EXPECT_NEAR(faster.factors.throughput, faster.ratio, 2e-3);
  EXPECT_NEAR(faster.ratio, 2, 2e-3);
  EXPECT_NEAR(faster.factors.samples_to_target, 1, 1e-9);

  // Twice the accelerators, each as fast.
  const Comparison more =
      compare(base, {.seconds_per_sample = 0.005, .eval_seconds = 0, .nodes = 2});
  expect_exact(more);
  EXPECT_NEAR(more.factors.accelerators, 2, 2e-3);
  EXPECT_NEAR(more.factors.throughput, 1, 1e-3);

  const Comparison longer =
      compare({.eval_seconds = 0, .intervals = 18}, {.eval_seconds = 0, .intervals = 15});
  expect_exact(longer);
  EXPECT_NEAR(longer.factors.samples_to_target, 18.5 / 15.5, 1e-3);
  EXPECT_NEAR(longer.factors.throughput, 1, 1e-3);
  EXPECT_LT(longer.samples_order.chance, 1e-3);
}

TEST(Compare, MixedCausesAreExactAndSymmetric) {
  const ComparedMachine a{
      .seconds_per_sample = 0.01, .eval_seconds = 20, .intervals = 16, .nodes = 3};
  const ComparedMachine b{
      .seconds_per_sample = 0.012, .eval_seconds = 3, .intervals = 15, .nodes = 1};
  const Comparison ab = compare(a, b);
  const Comparison ba = compare(b, a);
  expect_exact(ab);
  expect_exact(ba);
  EXPECT_NEAR(ab.factors.throughput * ba.factors.throughput, 1, 1e-12);
  EXPECT_NEAR(ab.factors.evaluation * ba.factors.evaluation, 1, 1e-12);
  EXPECT_GT(ab.factors.throughput, 1);  // per accelerator
  EXPECT_LT(ab.factors.accelerators, 1);
  EXPECT_GT(ab.factors.evaluation, 1);
}

TEST(Compare, PageShowsBothTimelines) {
  const Comparison c = compare({.eval_seconds = 20}, {.intervals = 16});
  const report::Page page = comparison_page(c);
  EXPECT_EQ(page.lead, c.verdict);
  const std::string html = report::render(page);
  for (const char* part :
       {"a: training", "a: evaluation", "b: training", "b: evaluation", "samples to target"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

TEST(Compare, EqualResultsAndOtherBenchmarks) {
  const Comparison same = compare({.seed = 0}, {.seed = 50});
  expect_exact(same);
  EXPECT_DOUBLE_EQ(same.ratio, 1);
  EXPECT_DOUBLE_EQ(same.minutes_order.chance, 1);
  EXPECT_NE(same.verdict.find("the same time"), std::string::npos);
  ASSERT_EQ(same.settings.size(), 0U);
  MemoryFileSystem files;
  const Score score = score_of(files, "a", {});
  Score other = score;
  other.benchmark = "gpt3";
  EXPECT_THROW(compare_results(score, other), Error);
  other = score;
  other.minutes.reset();
  EXPECT_THROW(compare_results(score, other), Error);
}

// Half the rate on twice the accelerators is no slower and no faster, and not the same either.
TEST(Compare, EqualTimesNameOpposingFactors) {
  const Comparison c = compare({.nodes = 2}, {.nodes = 1});
  expect_exact(c);
  EXPECT_DOUBLE_EQ(c.ratio, 1);
  EXPECT_NE(c.verdict.find("the same time; the first loses by throughput per accelerator (9"),
            std::string::npos)
      << c.verdict;
  EXPECT_NE(c.verdict.find(", the second by number of accelerators (9"), std::string::npos)
      << c.verdict;
}

TEST(Compare, AResultWithoutRoundSaysSo) {
  MemoryFileSystem files;
  Score a = score_of(files, "a", {});
  Score b = score_of(files, "v5.1/b", {});
  note_ruleset(false, a);
  note_ruleset(false, b);
  const Comparison c = compare_results(a, b);
  EXPECT_EQ(c.a.name, "no round a (8 X1)");
  EXPECT_EQ(c.b.name, "v5.1 v5.1/b (8 X1)");
  const std::string note = "no round a (8 X1): no round in the path: scored by 5.1.0, the newest";
  EXPECT_NE(format_comparison(c).find("note: " + note), std::string::npos) << format_comparison(c);
  EXPECT_EQ(to_json(c)["notes"].at(0).get<std::string>().find(note), 0U);
  EXPECT_EQ(c.notes.size(), 1U);
  // Rules that the user named for a result of another round.
  b.notes.clear();
  b.round = "v7.0";
  note_ruleset(true, b);
  ASSERT_EQ(b.notes.size(), 1U);
  EXPECT_NE(b.notes[0].find("round v7.0: scored by the rules 5.1.0 as asked"), std::string::npos);
}

// Stretches between evaluations with fewer steps than the log says: more than the run took.
TEST(Compare, NegativeStartUpIsReported) {
  MemoryFileSystem files;
  score_of(files, "a", {});
  for (int i = 0; i < 10; ++i) {
    SyntheticRun run;
    run.seed = i;
    SyntheticLog log = good_log(run);
    // All stretches but one in three take a tenth: the median is that of the slow ones.
    double saved = 0;
    int stretch = 0;
    for (LogLine& line : log.lines) {
      if (line.key == "block_stop" && ++stretch % 3 == 0) saved += 0.9 * 12'288 * 10;
      line.time_ms -= saved;
    }
    write_file(files, fmt::format("a/llama31_8b/result_{}.txt", i), log.text());
  }
  const Score score =
      score_result(files, find_results(files, "a")[0], find_ruleset("5.1.0"), benchmarks());
  ASSERT_LT(score.runs.at(0).timeline.value().startup_seconds, -100);
  const auto noted = [](const std::vector<std::string>& notes) {
    return std::count_if(notes.begin(), notes.end(), [](const std::string& note) {
      return note.find(
                 "in 10 of 10 runs steady steps and evaluations add up to more than the run "
                 "took, by up to ") != std::string::npos;
    });
  };
  EXPECT_EQ(noted(score.notes), 1);
  EXPECT_EQ(noted(compare_results(score, score).notes), 2);  // one of each side
  EXPECT_TRUE(score_of(files, "b", {}).notes.empty());
}

// v4.1, Llama 2 70B LoRA: 512 H100 of Oracle against 512 H200 of Azure, 28% apart. The accelerators
// train at the same rate; samples to target and evaluations make the difference.
TEST(Compare, PublishedH100AgainstH200) {
  const std::string shared = TUTTI_SOURCE_DIR "/../shared/mlperf/v4.1";
  FileSystem& files = posix_file_system();
  if (!files.is_directory(shared)) GTEST_SKIP() << "skipped: no shared data";
  const auto score = [&](const char* path) {
    return score_result(files, find_results(files, join_path(shared, path))[0],
                        find_ruleset("4.1.0"), benchmarks());
  };
  const Comparison c =
      compare_results(score("Oracle/512xBM.GPU.H100.8"), score("Azure/ND_H200_v5_n64_nemo"));
  expect_exact(c);
  EXPECT_NEAR(c.ratio, 2.065 / 1.609, 1e-3);
  EXPECT_NEAR(c.a.samples_per_second, 114.6, 1);
  EXPECT_NEAR(c.b.samples_per_second, 112.3, 1);
  EXPECT_NEAR(c.a.evaluations, 19.3, 0.8);
  EXPECT_NEAR(c.b.evaluations, 9.3, 0.5);
  EXPECT_NEAR(c.a.samples, 8976, 100);
  EXPECT_NEAR(c.b.samples, 7440, 100);
  EXPECT_EQ(c.factors.accelerators, 1);
  EXPECT_EQ(c.factors.scaling, 1);
  EXPECT_LT(std::abs(std::log(c.factors.throughput)), 0.03);
  EXPECT_GT(std::log(c.factors.samples_to_target) + std::log(c.factors.evaluation),
            0.9 * std::log(c.ratio));
  EXPECT_NE(c.verdict.find("not the cause"), std::string::npos) << c.verdict;
  EXPECT_LT(c.samples_order.chance, 0.05);
  bool rate = false;
  for (const SettingDifference& s : c.settings) rate = rate || s.key == "opt_base_learning_rate";
  EXPECT_TRUE(rate);
}

}  // namespace
}  // namespace tutti::mlperf
