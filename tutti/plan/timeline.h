// Timeline of one predicted step: the work of every pipeline rank over time. The passes are those
// that the simulator executes (simulate.h); before them is exposed traffic of weights, after them
// that of gradients, the optimizer, and the time lost to host and stragglers. Traffic exposed
// within passes (tensor, context, expert parallel, ZeRO 2 and 3) is part of the pass.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/plan/predict.h"
#include "tutti/report/gantt.h"

namespace tutti::plan {

enum class Work { forward, backward, weight_gradient, wait, communicate, update };
inline constexpr int kWorkKinds = 6;
const char* work_name(Work work);

struct TimelineSpan {
  Work work = Work::forward;
  int64_t micro = -1;  // of passes
  int64_t chunk = 0;
  double begin_seconds = 0;
  double end_seconds = 0;
};

struct StepTimeline {
  double seconds = 0;
  std::vector<std::vector<TimelineSpan>> ranks;  // per pipeline rank, in order, without gaps

  double total(size_t rank, Work work) const;
};

// The timeline ends at `step.step_seconds`. Throws unsupported if the step has more than
// kMostPasses passes.
inline constexpr int64_t kMostPasses = 2'000'000;
StepTimeline step_timeline(const spec::Recipe& recipe, const spec::Profile& profile,
                           const catalog::System& system, const Constants& constants,
                           const StepPrediction& step, PipelineSimulator& simulator);

// Ranks to show: all, or `most` of them, evenly spaced, including the first and the last.
std::vector<size_t> shown_ranks(const StepTimeline& timeline, size_t most);

// A line per rank of at most `columns` characters, each showing what most of its time is spent on;
// below them a scale of seconds and the legend.
std::string draw_text(const StepTimeline& timeline, int columns, size_t most_ranks);
report::Gantt draw_page(const StepTimeline& timeline, size_t most_ranks);
// {seconds, ranks: [{stage, seconds: {forward, ...}, spans: [[work, micro, chunk, begin, end]]}]};
// spans are omitted (null) if there are more than 20,000.
Json to_json(const StepTimeline& timeline);

}  // namespace tutti::plan
