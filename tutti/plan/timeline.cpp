#include "tutti/plan/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/units.h"

namespace tutti::plan {
namespace {

constexpr size_t kMostListed = 20000;

struct WorkInfo {
  const char* name;
  const char* legend;
  char letter;
};
constexpr std::array<WorkInfo, kWorkKinds> kWork = {{
    {"forward", "forward", 'F'},
    {"backward", "backward (with recomputation)", 'B'},
    {"weight_gradient", "weight gradient", 'W'},
    {"wait", "wait: receive, bubble, host", '.'},
    {"communicate", "gather and reduce", '='},
    {"update", "update", 'U'},
}};

const WorkInfo& info(Work work) { return kWork[static_cast<size_t>(work)]; }

Work work_of(spec::ActionKind kind) {
  if (kind == spec::ActionKind::forward) return Work::forward;
  return kind == spec::ActionKind::backward ? Work::backward : Work::weight_gradient;
}

void append(std::vector<TimelineSpan>& spans, Work work, double& at, double seconds) {
  if (seconds <= 0) return;
  spans.push_back({work, -1, 0, at, at + seconds});
  at += seconds;
}

std::string span_label(const TimelineSpan& span) {
  if (span.micro < 0) return info(span.work).legend;
  return fmt::format("{}, micro-batch {}{}", info(span.work).name, span.micro,
                     span.chunk > 0 ? fmt::format(", chunk {}", span.chunk) : "");
}

// The work that takes most of each of `width` equal parts.
std::string lane_text(const std::vector<TimelineSpan>& spans, double seconds, int width) {
  std::vector<std::array<double, kWorkKinds>> bins(static_cast<size_t>(width));
  const double bin = seconds / width;
  for (const TimelineSpan& span : spans) {
    const int first = std::clamp(static_cast<int>(span.begin_seconds / bin), 0, width - 1);
    const int last = std::clamp(static_cast<int>(span.end_seconds / bin), 0, width - 1);
    for (int i = first; i <= last; ++i) {
      const double begin = std::max(span.begin_seconds, i * bin);
      const double end = std::min(span.end_seconds, (i + 1) * bin);
      if (end <= begin) continue;
      bins[static_cast<size_t>(i)][static_cast<size_t>(span.work)] += end - begin;
    }
  }
  std::string text;
  for (const auto& parts : bins) {
    const auto most = std::max_element(parts.begin(), parts.end());
    text += *most > 0 ? kWork[static_cast<size_t>(most - parts.begin())].letter : ' ';
  }
  return text;
}

}  // namespace

const char* work_name(Work work) { return info(work).name; }

double StepTimeline::total(size_t rank, Work work) const {
  double sum = 0;
  for (const TimelineSpan& span : ranks[rank]) {
    if (span.work == work) sum += span.end_seconds - span.begin_seconds;
  }
  return sum;
}

StepTimeline step_timeline(const spec::Recipe& recipe, const spec::Profile& profile,
                           const catalog::System& system, const Constants& constants,
                           const StepPrediction& step, PipelineSimulator& simulator) {
  const spec::Mesh& mesh = recipe.parallel;
  const int64_t micro_batches = spec::make_schedule(recipe).micro_batches;
  const int64_t passes = 3 * mesh.virtual_stages() * micro_batches;
  if (passes > kMostPasses) {
    fail(ErrorKind::unsupported,
         "a step of {} passes is too long to draw (at most {}); fewer micro-batches have the same "
         "pattern: lower batch.global",
         passes, kMostPasses);
  }
  const Pricing pricing =
      price_program(spec::make_program(recipe, profile), recipe, system, constants);
  const SimulatedPipeline played =
      simulator.run(mesh, micro_batches, pass_seconds(pricing, recipe, profile, constants), true);
  StepTimeline out;
  out.seconds = step.step_seconds;
  out.ranks.resize(static_cast<size_t>(mesh.pp));
  std::vector<double> at(static_cast<size_t>(mesh.pp), 0);
  for (size_t r = 0; r < out.ranks.size(); ++r) {
    append(out.ranks[r], Work::communicate, at[r], step.gather_seconds);
  }
  for (const TimelineEntry& entry : played.timeline) {
    const auto r = static_cast<size_t>(entry.stage);
    const double begin = step.gather_seconds + entry.start_seconds;
    append(out.ranks[r], Work::wait, at[r], begin - at[r]);
    const double end = step.gather_seconds + entry.end_seconds;
    out.ranks[r].push_back(
        {work_of(entry.action.kind), entry.action.micro, entry.action.chunk, begin, end});
    at[r] = end;
  }
  for (size_t r = 0; r < out.ranks.size(); ++r) {
    append(out.ranks[r], Work::wait, at[r], step.gather_seconds + played.seconds - at[r]);
    append(out.ranks[r], Work::communicate, at[r], step.reduce_seconds);
    append(out.ranks[r], Work::update, at[r], step.split.optimizer);
    append(out.ranks[r], Work::wait, at[r], out.seconds - at[r]);
  }
  return out;
}

std::vector<size_t> shown_ranks(const StepTimeline& timeline, size_t most) {
  const size_t count = timeline.ranks.size();
  const size_t shown = std::min(count, std::max<size_t>(most, 2));
  std::vector<size_t> out;
  for (size_t i = 0; i < shown; ++i) {
    out.push_back(shown == count ? i : i * (count - 1) / (shown - 1));
  }
  return out;
}

std::string draw_text(const StepTimeline& timeline, int columns, size_t most_ranks) {
  const std::vector<size_t> shown = shown_ranks(timeline, most_ranks);
  constexpr int kName = 11;
  constexpr int kBusy = 6;
  const int width = std::max(columns - kName - kBusy, 20);
  std::string out;
  for (const size_t r : shown) {
    const double idle = timeline.total(r, Work::wait) / timeline.seconds;
    out += fmt::format("{:<{}}{}{:>5.0f}%\n", fmt::format("stage {}", r), kName,
                       lane_text(timeline.ranks[r], timeline.seconds, width), 100 * (1 - idle));
  }
  const std::string end = format_seconds(timeline.seconds);
  out += fmt::format("{:<{}}0{:>{}}  busy\n", "", kName, end, width - 1);
  if (shown.size() < timeline.ranks.size()) {
    out += fmt::format("{} of {} stages shown\n", shown.size(), timeline.ranks.size());
  }
  std::string line;
  for (const WorkInfo& work : kWork) {
    const std::string item = fmt::format("{} {}", work.letter, work.legend);
    if (static_cast<int>(line.size() + item.size()) + 3 > columns) {
      out += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : "   ") + item;
  }
  return out + line + "\n";
}

namespace {

// Waiting is drawn paler than work.
int color_of(Work work) { return work == Work::wait ? report::kIdle : static_cast<int>(work); }

}  // namespace

report::Gantt draw_page(const StepTimeline& timeline, size_t most_ranks) {
  report::Gantt gantt;
  gantt.id = "step";
  gantt.title = "One step";
  const std::vector<size_t> shown = shown_ranks(timeline, most_ranks);
  if (shown.size() < timeline.ranks.size()) {
    gantt.subtitle = fmt::format("{} of {} pipeline stages", shown.size(), timeline.ranks.size());
  }
  for (size_t i = 0; i < kWork.size(); ++i) {
    gantt.legend.emplace_back(kWork[i].legend, color_of(static_cast<Work>(i)));
  }
  for (const size_t r : shown) {
    report::Lane lane;
    lane.name = fmt::format("stage {}", r);
    for (const TimelineSpan& span : timeline.ranks[r]) {
      lane.spans.push_back(
          {span.begin_seconds, span.end_seconds, span_label(span), color_of(span.work)});
    }
    gantt.lanes.push_back(std::move(lane));
  }
  return gantt;
}

Json to_json(const StepTimeline& timeline) {
  size_t count = 0;
  for (const auto& spans : timeline.ranks) count += spans.size();
  Json ranks = Json::array();
  for (size_t r = 0; r < timeline.ranks.size(); ++r) {
    Json seconds = Json::object();
    for (int i = 0; i < kWorkKinds; ++i) {
      const auto work = static_cast<Work>(i);
      seconds[work_name(work)] = timeline.total(r, work);
    }
    Json spans = nullptr;
    if (count <= kMostListed) {
      spans = Json::array();
      for (const TimelineSpan& span : timeline.ranks[r]) {
        spans.push_back(
            {work_name(span.work), span.micro, span.chunk, span.begin_seconds, span.end_seconds});
      }
    }
    ranks.push_back({{"stage", r}, {"seconds", std::move(seconds)}, {"spans", std::move(spans)}});
  }
  return {{"seconds", timeline.seconds}, {"ranks", std::move(ranks)}};
}

}  // namespace tutti::plan
