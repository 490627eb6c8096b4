#include "tutti/telemetry/sinks/terminal.h"

#include <gtest/gtest.h>

#include "tutti/telemetry/testing/test_support.h"

namespace tutti::telemetry {
namespace {

using testing::Screen;

RunStarted run() {
  RunStarted started;
  started.run = "runs/shakespeare";
  started.name = "shakespeare";
  started.parameters = 805504;
  started.steps = 2000;
  started.target_loss = 1.88;
  return started;
}

StepDone step(int64_t number, double loss) {
  StepDone out;
  out.step = number;
  out.loss = loss;
  out.step_seconds = 0.02;
  out.tokens_per_second = 38400;
  out.mfu = 0.452;
  return out;
}

// One step per second from time 1000 on.
void train(TerminalSink& sink, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; ++i) {
    sink.write({1000.0 + static_cast<double>(i), step(i, 4.0 - 0.001 * static_cast<double>(i))});
  }
}

TEST(Terminal, PlainOutputOfAWholeRun) {
  const Screen screen;
  TerminalSink sink({screen.console(false)});
  sink.write({1000, run()});
  train(sink, 1, 12);
  sink.write({1013, EvaluationDone{12, 2.5, 1000, 0.5}});
  sink.write({1014, EvaluationDone{12, 2.25, 1000, 0.5}});
  train(sink, 16, 17);
  sink.write({1017, CheckpointSaved{17, "checkpoints/step-00000017", 3 << 20, 0.012, 2.1}});
  sink.write({1017, TextGenerated{17, "int ", "x;\nend", 6, 0.1}});
  sink.write({1017, CheckpointFailed{17, "no space"}});
  sink.write({1017, NonFinite{17, "head.weight", 2}});
  sink.write({1017, BudgetExceeded{"hours", 1, 1.25}});
  sink.write({1017, Message{Level::info, "two\nlines"}});
  sink.write({1017, Message{Level::warning, "careful"}});
  sink.write({1018, EvaluationDone{17, 1.875, 1000, 0.5}});
  sink.write({1018, RunFinished{"target_reached", {{"tokens", 1536000}}}});
  EXPECT_EQ(*screen.text,
            "training shakespeare, 805.5 k parameters, 2,000 steps, to loss 1.8800\n"
            "step 1/2000  loss 3.9990  40.0 s left  38,400 tokens/s  MFU 45.2%\n"
            "step 6/2000  loss 3.9940  33 min 14 s left  38,400 tokens/s  MFU 45.2%\n"
            "step 11/2000  loss 3.9890  33 min 09 s left  38,400 tokens/s  MFU 45.2%\n"
            "step 12: validation loss 2.5000, 500 ms\n"
            "step 12: validation loss 2.2500, best so far, 500 ms\n"
            "step 16/2000  loss 3.9840  33 min 04 s left  38,400 tokens/s  MFU 45.2%  val 2.2500\n"
            "step 17: checkpoint checkpoints/step-00000017 saved, 3.00 MiB in 2.1 s, training "
            "waited 12 ms\n"
            "step 17: the model writes\n"
            "  | int x;\n"
            "  | end\n"
            "warning: step 17: checkpoint not saved: no space\n"
            "warning: step 17: gradient of head.weight is not finite, step skipped (2 in a row)\n"
            "warning: budget exceeded: 1.25 hours used, 1 allowed\n"
            "two\n"
            "lines\n"
            "warning: careful\n"
            "step 17: validation loss 1.8750, target reached, 500 ms\n"
            "step 17/2000  loss 3.9830  33 min 03 s left  38,400 tokens/s  MFU 45.2%  val 1.8750\n"
            "finished: target reached\n");
}

TEST(Terminal, StatusLineOnATerminal) {
  const Screen screen;
  TerminalSink sink({screen.console(true, 80)});
  sink.write({1000, run()});
  screen.take();
  train(sink, 1000, 1001);
  EXPECT_EQ(
      screen.take(),
      "\r\x1b[K[####....] 1000/2000  loss 3.0000  20.0 s left  38,400 tokens/s  MFU 45.2%"
      "\r\x1b[K[####....] 1001/2000  loss 2.9990  16 min 39 s left  38,400 tokens/s  MFU 45.2%");
  // A line that stays goes above it; the end removes it.
  sink.write({2001.01, Message{Level::info, "note"}});
  EXPECT_EQ(screen.take().rfind("\r\x1b[Knote\n[####", 0), 0U);
  sink.write({2001.02, step(1002, 3)});
  EXPECT_EQ(screen.take(), "");  // redrawn at most ten times a second
  sink.write({2002, RunFinished{"steps_done", Json::object()}});
  EXPECT_EQ(screen.take(), "\r\x1b[Kfinished: steps done\n");
}

TEST(Terminal, EveryWidthHoldsTheLine) {
  for (int columns = 1; columns < 160; ++columns) {
    const Screen screen;
    TerminalSink sink({screen.console(true, columns)});
    sink.write({1000, run()});
    screen.take();
    sink.write({1001, step(1, 4)});
    const std::string line = screen.take().substr(4);  // after "\r\x1b[K"
    EXPECT_LT(static_cast<int>(line.size()), std::max(columns, 1)) << columns;
    if (columns > 30) {
      EXPECT_NE(line.find(" 1/2000  loss 4.0000"), std::string::npos) << columns;
    }
  }
}

TEST(Terminal, RunsWithoutPlannedStepsHaveNoBar) {
  const Screen screen;
  TerminalSink sink({screen.console(true, 100)});
  StepDone only = step(5, 2);
  only.mfu = 0;  // not measured
  sink.write({1001, only});
  EXPECT_EQ(screen.take(), "\r\x1b[Kstep 5  loss 2.0000  38,400 tokens/s");
}

}  // namespace
}  // namespace tutti::telemetry
