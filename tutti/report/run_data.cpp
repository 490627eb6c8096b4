#include "tutti/report/run_data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/text.h"

namespace tutti::report {
namespace {

// Takes events in the order in which they were written. A resumed run goes back to its last
// checkpoint: what it had recorded beyond is taken back.
class Collector {
 public:
  explicit Collector(RunData& run) : run_(run) {}

  void operator()(const telemetry::Event& event) {
    wall_ = event.wall_seconds;
    // A clock that was set back does not rewind the run. 0: the line has no time.
    if (wall_ > 0) set_back_ += std::max(0.0, std::exchange(last_wall_, wall_) - wall_);
    if (!std::holds_alternative<telemetry::RunStarted>(event.body)) open_part(0);
    std::visit([this](const auto& body) { take(body); }, event.body);
    if (!run_.parts.empty())
      run_.parts.back().end_wall = std::max(run_.parts.back().end_wall, wall_);
  }

 private:
  // A file may start without a run_started: cut, or of another version.
  void open_part(int64_t first_step) {
    if (!run_.parts.empty()) return;
    run_.parts.push_back({wall_, wall_, first_step, first_step, {}});
  }

  double clock() const { return train_before_ + wall_ - run_.parts.back().begin_wall + set_back_; }

  void go_back_to(int64_t step) {
    const auto limit = static_cast<double>(step);
    StepSeries& s = run_.steps;
    size_t keep = s.size();
    while (keep > 0 && s.step[keep - 1] > limit) --keep;
    run_.repeated_steps += static_cast<int64_t>(s.size() - keep);
    for (auto* column : {&s.step, &s.loss, &s.cross_entropy, &s.divergence, &s.gradient_norm,
                         &s.learning_rate, &s.step_seconds, &s.tokens_per_second, &s.mfu,
                         &s.data_wait_seconds, &s.wall, &s.train_seconds}) {
      column->resize(keep);
    }
    tokens_.resize(keep);
    run_.tokens = keep > 0 ? tokens_.back() : 0;
    const auto later = [step](const auto& timed) { return timed.body.step > step; };
    std::erase_if(run_.evaluations, later);
    std::erase_if(run_.samples, later);
    std::erase_if(run_.non_finite, later);
    run_.skipped_steps = static_cast<int64_t>(run_.non_finite.size());
  }

  void take(const telemetry::RunStarted& event) {
    // The run's clock stands still between its parts. It continues from the last step that counts.
    go_back_to(event.first_step);
    train_before_ = run_.steps.size() > 0 ? run_.steps.train_seconds.back() : 0;
    set_back_ = 0;
    run_.parts.push_back({wall_, wall_, event.first_step, event.first_step, {}});
    run_.started = event;
    run_.finished.reset();
    run_.corpora.clear();
    run_.memory.clear();
  }
  void take(const telemetry::MachineDescribed& event) { run_.machine = event; }
  void take(const telemetry::CorpusDescribed& event) { run_.corpora.push_back(event); }
  void take(const telemetry::MemoryMeasured& event) {
    run_.memory = event.kinds;
    run_.peak_resident_bytes = std::max(run_.peak_resident_bytes, event.peak_resident_bytes);
  }
  void take(const telemetry::StepDone& event) {
    StepSeries& s = run_.steps;
    if (s.size() > 0 && static_cast<double>(event.step) <= s.step.back())
      go_back_to(event.step - 1);
    s.step.push_back(static_cast<double>(event.step));
    s.loss.push_back(event.loss);
    const telemetry::LossParts none = {std::nan(""), std::nan("")};
    s.cross_entropy.push_back(event.parts.value_or(none).cross_entropy);
    s.divergence.push_back(event.parts.value_or(none).divergence);
    s.gradient_norm.push_back(event.gradient_norm);
    s.learning_rate.push_back(event.learning_rate);
    s.step_seconds.push_back(event.step_seconds);
    s.tokens_per_second.push_back(event.tokens_per_second);
    s.mfu.push_back(event.mfu);
    s.data_wait_seconds.push_back(event.data_wait_seconds);
    s.wall.push_back(wall_);
    s.train_seconds.push_back(clock());
    tokens_.push_back(event.tokens);
    run_.tokens = event.tokens;
    run_.parts.back().last_step = event.step;
  }
  template <typename Body>
  void keep(std::vector<Timed<Body>>& list, const Body& body) {
    list.push_back({wall_, clock(), body});
  }
  void take(const telemetry::EvaluationDone& event) { keep(run_.evaluations, event); }
  void take(const telemetry::CheckpointSaved& event) { keep(run_.checkpoints, event); }
  void take(const telemetry::CheckpointFailed& event) { keep(run_.failed_checkpoints, event); }
  void take(const telemetry::TextGenerated& event) { keep(run_.samples, event); }
  void take(const telemetry::NonFinite& event) {
    keep(run_.non_finite, event);
    ++run_.skipped_steps;
  }
  void take(const telemetry::BudgetExceeded& event) { keep(run_.over_budget, event); }
  void take(const telemetry::GpuMeasured& event) { keep(run_.gpus, event); }
  void take(const telemetry::Message& event) {
    if (event.level == telemetry::Level::warning) keep(run_.warnings, event);
  }
  void take(const telemetry::EventsLost& event) {
    keep(run_.warnings, telemetry::Message{telemetry::Level::warning, text_of(event)});
  }
  void take(const telemetry::MlperfLine& /*event*/) {}
  void take(const telemetry::RunFinished& event) {
    run_.finished = event;
    run_.parts.back().outcome = event.outcome;
  }

  RunData& run_;
  double wall_ = 0;
  double train_before_ = 0;
  double last_wall_ = 0;
  double set_back_ = 0;          // seconds that clocks were set back in this part
  std::vector<int64_t> tokens_;  // of the run so far, after each of its steps
};

}  // namespace

std::string RunData::recipe_value(const std::string& key) const {
  for (const auto& [name, value] : recipe) {
    if (name != key) continue;
    const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
    return quoted ? value.substr(1, value.size() - 2) : value;
  }
  return {};
}

RunData read_run(FileSystem& files, const std::string& folder,
                 const std::function<void(int64_t, int64_t)>& on_progress) {
  const std::string events = join_path(folder, "events.jsonl");
  if (!files.exists(events)) {
    fail(ErrorKind::not_found,
         "'{}' is not a run folder: no '{}'; give the folder that 'tutti train' printed", folder,
         events);
  }
  RunData run;
  run.folder = folder;
  Collector collector(run);
  run.lines = telemetry::read_events(
      files, events, [&](const telemetry::Event& event) { collector(event); }, on_progress);
  if (run.lines.events + run.lines.unreadable + run.lines.unknown == 0) {
    fail(ErrorKind::not_found,
         "'{}' holds no event yet: the run ended before it began, or is about to begin; start it "
         "again, or look later",
         events);
  }
  if (run.lines.events == 0) {
    fail(ErrorKind::corrupt,
         "'{}' holds no event ({} lines that are none); was it written by Tutti?", events,
         run.lines.unreadable + run.lines.unknown);
  }
  const std::string recipe = join_path(folder, "recipe.yaml");
  if (files.exists(recipe)) {
    run.recipe_yaml = read_file(files, recipe);
    run.recipe = flatten_yaml(run.recipe_yaml);
  }
  return run;
}

}  // namespace tutti::report
