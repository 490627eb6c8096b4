#include "tutti/cli/mlperf/set_runner.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/telemetry/event_tail.h"
#include "tutti/telemetry/sinks/console.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

constexpr int64_t kShownLines = 12;  // of the log of a failed run

// One line about the set below the permanent ones: which run, how far.
class Display {
 public:
  Display(int64_t runs, int64_t steps)
      : status_(telemetry::stderr_console()), runs_(runs), steps_(steps) {}
  ~Display() { status_.clear(); }

  void print(const std::string& line, telemetry::Tint tint = telemetry::Tint::plain) {
    status_.print(line, tint);
  }
  // At most as often as makes sense; `begin` is when the run started.
  void update(size_t run, uint64_t seed, const std::string& events, double begin) {
    const double now = monotonic_seconds();
    if (now < next_) return;
    next_ = now + (status_.terminal() ? 0.5 : 30);
    const auto step = telemetry::last_step(posix_file_system(), events);
    const double share =
        step && steps_ > 0 ? static_cast<double>(step->step) / static_cast<double>(steps_) : 0;
    const std::string at =
        step ? fmt::format("step {}/{}, loss {:.4f}", step->step, steps_, step->loss)
             : std::string("starting");
    const std::string text = fmt::format("run {} of {}, seed {}: {}, {:.1f} min", run + 1, runs_,
                                         seed, at, (now - begin) / 60);
    const double done = (static_cast<double>(run) + share) / static_cast<double>(runs_);
    if (status_.terminal()) {
      const int width = telemetry::progress_bar_width(status_.columns());
      status_.show((width > 0 ? telemetry::progress_bar(done, width) + " " : "") + text);
    } else if (now - begin > 1) {
      status_.print(text);
    }
  }
  void clear() { status_.clear(); }

 private:
  telemetry::StatusLine status_;
  const int64_t runs_;
  const int64_t steps_;
  double next_ = 0;
};

std::string tail_of(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return {};
  const std::string text = read_file(files, path);
  const auto lines = split(trim(text), '\n');
  const auto shown = std::min<size_t>(lines.size(), kShownLines);
  std::string out;
  for (size_t i = lines.size() - shown; i < lines.size(); ++i) {
    out += "  | " + printable(lines[i]) + "\n";
  }
  return out;
}

// Runs what is missing of a set, one run after the other.
class SetRunner {
 public:
  SetRunner(FileSystem& files, const SetPaths& paths, mlperf::RunSet& set, int64_t steps)
      : files_(files),
        paths_(paths),
        set_(set),
        display_(static_cast<int64_t>(set.runs.size()), steps) {}

  // False: asked to stop; what is done is saved.
  bool run_all() {
    put_aside_what_was_cut();
    for (size_t i = 0; i < set_.runs.size(); ++i) {
      if (set_.runs[i].progress != mlperf::RunProgress::planned) continue;
      if (set_.missed() > 1) {
        display_.print(
            fmt::format("two runs missed the target: the set can no longer get a score, and "
                        "{} runs were not started",
                        static_cast<int64_t>(set_.runs.size()) - set_.ended()),
            telemetry::Tint::warning);
        break;
      }
      if (stop_signal() != 0 || !run_one(i)) return false;
    }
    display_.clear();
    return true;
  }

 private:
  void save() { mlperf::save_run_set(files_, paths_.set(), set_); }

  // The command ended in the middle of a run; none of its processes is left (the lock is free).
  void put_aside_what_was_cut() {
    for (size_t i = 0; i < set_.runs.size(); ++i) {
      if (set_.runs[i].progress == mlperf::RunProgress::running) {
        put_aside(i, "the command ended without a word");
      }
    }
  }

  void put_aside(size_t index, const std::string& reason) {
    mlperf::SetRun& run = set_.runs[index];
    const std::string folder = join_path(join_path(paths_.out, "interrupted"),
                                         fmt::format("run_{}-{}", index, set_.attempts.size() + 1));
    files_.create_directories(parent_path(folder));
    if (files_.exists(paths_.run(index))) files_.rename(paths_.run(index), folder);
    set_.attempts.push_back({static_cast<int64_t>(index), folder, run.started, reason});
    const uint64_t seed = run.seed;
    run = {};
    run.seed = seed;
    save();
  }

  bool run_one(size_t index) {
    mlperf::SetRun& run = set_.runs[index];
    files_.create_directories(parent_path(paths_.run(index)));
    run.progress = mlperf::RunProgress::running;
    run.started = format_utc(wall_seconds());
    save();
    const double begin = monotonic_seconds();
    ChildProcess child(
        kThisExecutable,
        {"tutti", "train", paths_.recipe(), fmt::format("train.seed={}", run.seed), "--run",
         paths_.run(index), "--end-with-parent", std::to_string(::getpid())},
        paths_.output(index));
    int passed_on = 0;
    while (!child.exit_code()) {
      display_.update(index, run.seed, train::events_path(paths_.run(index)), begin);
      if (passed_on == 0 && stop_signal() != 0) {
        passed_on = stop_signal();
        child.send(passed_on);
        display_.print(fmt::format("stopping run {} (seed {})", index, run.seed));
      }
      sleep_seconds(0.05);
    }
    const int code = *child.exit_code();
    if (passed_on != 0 && code != exit_ok) {
      put_aside(index, fmt::format("stopped by signal {}", passed_on));
      return false;
    }
    if (code == exit_usage) {
      put_aside(index, "it could not start");
      display_.clear();
      fail(ErrorKind::usage, "run {} (seed {}) could not start; its last words:\n{}", index,
           run.seed, tail_of(files_, paths_.output(index)));
    }
    note_end(index, code);
    return passed_on == 0;
  }

  void note_end(size_t index, int code) {
    mlperf::SetRun& run = set_.runs[index];
    const auto outcome = mlperf::read_outcome(files_, paths_.log(index));
    run.exit_code = code;
    run.ended = format_utc(wall_seconds());
    run.minutes = outcome.minutes;
    run.reached_target = code == exit_ok && outcome.reached_target;
    run.progress = code == exit_ok ? mlperf::RunProgress::done : mlperf::RunProgress::failed;
    if (code != exit_ok) run.reason = fmt::format("exit code {}", code);
    save();
    const std::string who =
        fmt::format("run {} of {}, seed {}: ", index + 1, set_.runs.size(), run.seed);
    const std::string minutes =
        run.minutes ? fmt::format("{:.3f} min", *run.minutes) : std::string("no time");
    if (run.reached_target) {
      display_.print(who + "target reached, " + minutes, telemetry::Tint::good);
    } else if (code == exit_ok) {
      display_.print(who + "ended without the target, " + minutes + "; it counts as the slowest",
                     telemetry::Tint::warning);
    } else {
      display_.print(fmt::format("{}failed ({}); it counts as the slowest. The end of {}:", who,
                                 run.reason, paths_.output(index)),
                     telemetry::Tint::warning);
      const std::string tail = tail_of(files_, paths_.output(index));
      for (const std::string_view line : split(trim(tail), '\n')) {
        display_.print("  " + std::string(line));
      }
    }
  }

  FileSystem& files_;
  const SetPaths& paths_;
  mlperf::RunSet& set_;
  Display display_;
};

}  // namespace

std::string SetPaths::run(size_t index) const {
  return join_path(join_path(out, "runs"), fmt::format("run_{}", index));
}

std::string SetPaths::log(size_t index) const { return train::mlperf_log_path(run(index)); }

bool execute_set(FileSystem& files, const SetPaths& paths, mlperf::RunSet& set, int64_t steps) {
  return SetRunner(files, paths, set, steps).run_all();
}

}  // namespace tutti::cli
