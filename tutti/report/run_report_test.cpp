// From events to summaries and pages: whole, broken, resumed, old and long runs.
#include "tutti/report/run_report.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/report/comparison.h"
#include "tutti/telemetry/sinks/jsonl.h"

namespace tutti::report {
namespace {

constexpr double kStart = 1.8e9;

class RunReportTest : public ::testing::Test {
 protected:
  RunReportTest() { files_.create_directories("run"); }

  void emit(double seconds, decltype(telemetry::Event::body) body) {
    telemetry::JsonLinesSink(files_, events_).write({kStart + seconds, std::move(body)});
  }
  void start(double seconds, int64_t first_step) {
    telemetry::RunStarted started;
    started.name = "trial";
    started.steps = 100;
    started.first_step = first_step;
    started.tokens_per_step = 10;
    started.flops_per_token = 1000;
    started.gemm_peak_flops = 1e6;
    started.target_loss = 1.5;
    started.details = Json{{"owner", "Ada <ada>"}};
    emit(seconds, started);
  }
  void step(double seconds, int64_t number, double loss) {
    telemetry::StepDone done;
    done.step = number;
    done.tokens = 10 * number;
    done.loss = loss;
    done.gradient_norm = 1;
    done.learning_rate = 0.1;
    done.step_seconds = 1;
    done.tokens_per_second = 10;
    done.mfu = 0.01;
    emit(seconds, done);
  }
  RunData read() { return read_run(files_, "run"); }
  RunSummary summary(double now = kStart + 1e6) { return summarize(read(), now); }
  std::string page() {
    const RunData run = read();
    return render(run_page(run, summarize(run, kStart + 1e6), kStart));
  }

  MemoryFileSystem files_;
  std::string events_ = "run/events.jsonl";
};

TEST_F(RunReportTest, AWholeRun) {
  start(0, 0);
  for (int i = 1; i <= 4; ++i) step(i, i, 3 - 0.25 * i);
  emit(4.5, telemetry::EvaluationDone{4, 1.5, 64, 0.5});
  emit(5, telemetry::CheckpointSaved{4, "c", 100, 0.25, 1});
  emit(5, telemetry::RunFinished{"target_reached", Json{{"time_to_target_seconds", 4.25}}});
  const RunSummary s = summary();
  EXPECT_EQ(s.state, RunState::finished);
  EXPECT_EQ(s.steps, 4);
  EXPECT_EQ(s.tokens, 40);
  EXPECT_DOUBLE_EQ(s.final_loss.value(), 2);
  EXPECT_DOUBLE_EQ(s.validation_loss.value(), 1.5);
  EXPECT_DOUBLE_EQ(s.time_to_target_seconds.value(), 4.25);  // as the run recorded it
  EXPECT_DOUBLE_EQ(s.train_seconds, 4.5);
  EXPECT_DOUBLE_EQ(s.tokens_per_second, 10);
  EXPECT_DOUBLE_EQ(s.mfu, 10 * 1000 / 1e6);
  EXPECT_DOUBLE_EQ(s.checkpoint_stall_seconds, 0.25);
  EXPECT_EQ(s.resumes, 0);
  const std::string html = page();
  EXPECT_NE(html.find("Target reached"), std::string::npos);
  EXPECT_NE(html.find("Ada &lt;ada&gt;"), std::string::npos);
}

TEST_F(RunReportTest, RunningAndKilledRuns) {
  start(0, 0);
  step(1, 1, 3);
  EXPECT_EQ(summary(kStart + 20).state, RunState::running);
  EXPECT_EQ(summary(kStart + 1e5).state, RunState::broken);
  EXPECT_NE(page().find("ended without a word after step 1"), std::string::npos);
}

TEST_F(RunReportTest, ResumingRetractsUnsavedSteps) {
  start(0, 0);
  for (int i = 1; i <= 5; ++i) step(i, i, 3);
  emit(5, telemetry::EvaluationDone{5, 1.4, 64, 0.1});  // of a step that is done again
  start(100, 3);
  for (int i = 4; i <= 6; ++i) step(97 + i, i, 2);
  const RunData run = read();
  EXPECT_EQ(run.steps.step, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(run.steps.loss, (std::vector<double>{3, 3, 3, 2, 2, 2}));
  // The run's clock stands still in the pause, and continues from the saved step.
  EXPECT_EQ(run.steps.train_seconds, (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(run.evaluations.empty());
  const RunSummary s = summarize(run, kStart + 1e6);
  EXPECT_EQ(s.resumes, 1);
  EXPECT_EQ(s.repeated_steps, 2);
  EXPECT_FALSE(s.time_to_target_seconds);
}

TEST_F(RunReportTest, ResumingRetractsTokens) {
  start(0, 0);
  for (int i = 1; i <= 5; ++i) step(i, i, 3);
  start(100, 3);  // and killed before a step
  EXPECT_EQ(summary().steps, 3);
  EXPECT_EQ(summary().tokens, 30);
}

TEST_F(RunReportTest, ClockJumpsDoNotShortenTheRun) {
  start(0, 0);
  for (int i = 1; i <= 3; ++i) step(i, i, 3);
  for (int i = 4; i <= 6; ++i) step(i - 3600, i, 3);
  emit(7 - 3600, telemetry::EvaluationDone{6, 1.4, 64, 0.1});
  EXPECT_EQ(read().steps.train_seconds, (std::vector<double>{1, 2, 3, 3, 4, 5}));
  const RunSummary s = summary();
  EXPECT_EQ(s.train_seconds, 6);
  EXPECT_EQ(s.time_to_target_seconds.value(), 6);
}

TEST_F(RunReportTest, OldCutAndForeignLines) {
  write_file_atomic(files_, events_,
                    "{\"event\":\"step_done\",\"step\":7,\"loss\":2.5}\n"
                    "{\"event\":\"step_done\",\"step\":8,\"loss\":null}\n"
                    "{\"event\":\"evaluation_done\",\"step\":8}\n"
                    "nonsense\n"
                    "{\"event\":\"step_do");
  const RunSummary s = summary();
  EXPECT_DOUBLE_EQ(s.final_loss.value(), 2.5);
  EXPECT_FALSE(s.validation_loss);
  EXPECT_TRUE(std::isnan(s.step_seconds.p50));
  EXPECT_EQ(to_json(s)["step_seconds"]["p50"], Json(nullptr));
  const std::string html = page();
  for (const char* note : {"last line of events.jsonl is cut", "1 line of events.jsonl cannot be",
                           "starts with step 7", "holds no recipe.yaml"}) {
    EXPECT_NE(html.find(note), std::string::npos) << note;
  }
}

TEST_F(RunReportTest, NoEventsAreAnError) {
  const auto kind = [&] {
    try {
      read();
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::usage;
  };
  EXPECT_EQ(kind(), ErrorKind::not_found);
  write_file_atomic(files_, events_, "");  // it ended before it began
  EXPECT_EQ(kind(), ErrorKind::not_found);
  write_file_atomic(files_, events_, "nonsense\n");
  EXPECT_EQ(kind(), ErrorKind::corrupt);
}

TEST_F(RunReportTest, EveryPartIsOnThePage) {
  start(0, 0);
  emit(0, telemetry::MachineDescribed{"box", "EPYC <9>", 2, 2, 2e9, 1 << 30, "avx2", "bf16", 1e12,
                                      2e12, "0.1.0+gabc"});
  emit(0, telemetry::CorpusDescribed{"training",
                                     "corpora/t",
                                     1000,
                                     10,
                                     2000,
                                     "cafe",
                                     "byte",
                                     "f00d",
                                     257,
                                     "2026",
                                     "CC0-1.0",
                                     "public",
                                     {{"books/", 5, 6, 7, "beef", "MIT", "internal"}}});
  emit(0, telemetry::MemoryMeasured{0, 10, 1 << 20, {{"weights", 4096}}});
  step(1, 1, 3);
  emit(1, telemetry::NonFinite{1, "head.weight", 1});
  telemetry::GpuMeasured gpu;
  gpu.gpu = "0000:1a:00.0";
  gpu.power_watts = 650;
  gpu.throttled = {"power cap"};
  emit(1, gpu);
  emit(2, gpu);
  emit(2, telemetry::CheckpointFailed{1, "disk full"});
  emit(2, telemetry::TextGenerated{1, "int <", "x;\ny", 4, 0.1});
  emit(2, telemetry::BudgetExceeded{"hours", 1, 1.5});
  emit(2, telemetry::Message{telemetry::Level::warning, "mind the gap"});
  write_file_atomic(files_, "run/recipe.yaml",
                    "run:\n  project: \"tests\"\n  budget:\n    hours: 2\n");
  const std::string html = page();
  for (const char* text : {"EPYC &lt;9&gt;",
                           "0.1.0+gabc",
                           "corpora/t",
                           "cafe",
                           "f00d",
                           "CC0-1.0",
                           "books/",
                           "beef",
                           "internal",
                           "4.00 KiB",
                           "1.00 MiB",
                           "head.weight",
                           "disk full",
                           "int &lt;x;\ny\n",
                           "mind the gap",
                           "1.5 hours used",
                           "tests",
                           "of 2 h",
                           "chart-timeline",
                           "chart-gpu-power",
                           "0000:1a:00.0",
                           "at 2 looks: power cap",
                           "prefers-color-scheme"}) {
    EXPECT_NE(html.find(text), std::string::npos) << text;
  }
}

TEST_F(RunReportTest, TeachersAndTheirLossAreShown) {
  telemetry::RunStarted begun;
  begun.name = "trial";
  begun.steps = 2;
  begun.teacher =
      telemetry::TeacherDescribed{"runs/large/step-00000070", 70, "feed", "large", 999, 2, 0.75};
  emit(0, begun);
  for (int64_t i = 1; i <= 2; ++i) {
    telemetry::StepDone event;
    event.step = i;
    event.loss = 2.5;
    event.parts = telemetry::LossParts{2, 3};
    emit(static_cast<double>(i), event);
  }
  const RunData run = read();
  EXPECT_EQ(run.steps.cross_entropy, (std::vector<double>{2, 2}));
  EXPECT_EQ(run.steps.divergence, (std::vector<double>{3, 3}));
  const std::string html = page();
  for (const char* text : {"runs/large/step-00000070", "feed", "999", "divergence from the teacher",
                           "0.25 cross-entropy + 0.75 divergence at temperature 2"}) {
    EXPECT_NE(html.find(text), std::string::npos) << text;
  }
}

TEST_F(RunReportTest, ComparesWhatDiffers) {
  const auto write = [&](const std::string& folder, const char* rate, double loss) {
    files_.create_directories(folder);
    events_ = folder + "/events.jsonl";
    start(0, 0);
    step(1, 1, loss);
    write_file_atomic(files_, folder + "/recipe.yaml",
                      std::string("optimizer:\n  learning_rate: ") + rate +
                          "\n  beta1: 0.9\nrun:\n  name: \"" + folder + "\"\n");
  };
  write("a", "0.1", 3);
  write("b", "0.2", 1.5);
  const std::vector<RunData> runs = {read_run(files_, "a"), read_run(files_, "b")};
  const std::vector<Difference> found = differences(runs);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].key, "optimizer.learning_rate");
  EXPECT_EQ(found[0].values, (std::vector<std::string>{"0.1", "0.2"}));
  const std::vector<RunSummary> summaries = {summarize(runs[0], 0), summarize(runs[1], 0)};
  // Both call themselves "trial".
  EXPECT_EQ(run_labels(summaries), (std::vector<std::string>{"a", "b"}));
  const std::string html = render(comparison_page(runs, summaries, kStart));
  EXPECT_NE(html.find("1.5000 (-50.0%)"), std::string::npos);
  EXPECT_NE(html.find("optimizer.learning_rate"), std::string::npos);
}

}  // namespace
}  // namespace tutti::report
