// `tutti bench pipeline`: what a pipeline schedule loses to waiting, measured and drawn.
#include <algorithm>
#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/parallel/pipeline_bench.h"
#include "tutti/plan/timeline.h"
#include "tutti/report/page.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/telemetry/sinks/console.h"

namespace tutti::cli {
namespace {

constexpr int kPipelineColumns = 100;  // where output is not a terminal
constexpr int kLeastPipelineColumns = 80;

struct PipelineArguments {
  int64_t pp = 4;
  int64_t vpp = 1;
  int64_t micro_batches = 8;
  std::string schedule = "1f1b";
  double pass_seconds = 0.02;
  std::string html;
  bool json = false;
};

spec::Mesh mesh_of(const PipelineArguments& arguments) {
  const auto found =
      std::find_if(spec::kPipelineNames.begin(), spec::kPipelineNames.end(),
                   [&](const auto& known) { return known.first == arguments.schedule; });
  if (found == spec::kPipelineNames.end()) {
    std::vector<std::string> names;
    for (const auto& known : spec::kPipelineNames) names.push_back(known.first);
    fail(ErrorKind::usage, "--schedule {}: expected {}", arguments.schedule, join(names, ", "));
  }
  const spec::Mesh mesh = {.pp = arguments.pp, .vpp = arguments.vpp, .pipeline = found->second};
  if (mesh.vpp > 1 && mesh.pipeline != spec::Pipeline::one_f_one_b) {
    fail(ErrorKind::usage, "--vpp {}: virtual stages need --schedule interleaved", mesh.vpp);
  }
  if (mesh.vpp > 1 && arguments.micro_batches % mesh.pp != 0) {
    fail(ErrorKind::usage, "--micro-batches {}: with --vpp a multiple of --pp {}",
         arguments.micro_batches, mesh.pp);
  }
  return mesh;
}

// The same drawing as of predicted steps, with what lies between passes as waiting.
plan::StepTimeline timeline_of(const parallel::PipelineMeasurement& measured) {
  plan::StepTimeline out;
  out.seconds = measured.seconds;
  for (const std::vector<parallel::PassSpan>& rank : measured.ranks) {
    std::vector<plan::TimelineSpan>& spans = out.ranks.emplace_back();
    double now = 0;
    const auto wait_until = [&](double end) {
      if (end > now) spans.push_back({plan::Work::wait, -1, 0, now, end});
    };
    for (const parallel::PassSpan& pass : rank) {
      wait_until(pass.begin_seconds);
      now = pass.end_seconds;
      const plan::Work work = pass.action.kind == spec::ActionKind::forward ? plan::Work::forward
                              : pass.action.kind == spec::ActionKind::backward
                                  ? plan::Work::backward
                                  : plan::Work::weight_gradient;
      spans.push_back({work, pass.action.micro, pass.action.chunk, pass.begin_seconds, now});
    }
    wait_until(out.seconds);
  }
  return out;
}

std::string page_of(const std::string& title, const std::string& lead,
                    const plan::StepTimeline& timeline, double bubble, double ideal) {
  report::Page page;
  page.kind = "Measured schedule";
  page.title = title;
  page.lead = lead;
  page.status = "measured";
  page.tone = report::Page::Tone::neutral;
  page.tiles = {{"step", format_seconds(timeline.seconds), "passes are sleeps"},
                {"idle / busy", fmt::format("{:.1f}%", 100 * bubble), "measured"},
                {"in theory", fmt::format("{:.1f}%", 100 * ideal), "of equal stages"}};
  page.sections.push_back({"timeline", "What every stage does",
                           report::draw(plan::draw_page(timeline, timeline.ranks.size()))});
  return report::render(page);
}

int run_pipeline(const PipelineArguments& arguments) {
  const spec::Mesh mesh = mesh_of(arguments);
  const double pass = arguments.pass_seconds / static_cast<double>(mesh.vpp);
  const parallel::PipelineMeasurement measured =
      parallel::measure_pipeline(mesh, arguments.micro_batches, {pass, pass, pass});
  const plan::StepTimeline timeline = timeline_of(measured);
  const double ideal = parallel::ideal_bubble(mesh, arguments.micro_batches);
  const double bubble = measured.bubble();
  const std::string title = fmt::format("{} stages, {}", mesh.pp, arguments.schedule);
  const std::string lead =
      fmt::format("{} micro-batches{}; forward, backward and weight gradient of {} each.",
                  arguments.micro_batches,
                  mesh.vpp > 1 ? fmt::format(" through {} virtual stages per rank", mesh.vpp) : "",
                  format_seconds(pass));
  if (!arguments.html.empty()) {
    write_file_atomic(posix_file_system(), arguments.html,
                      page_of(title, lead, timeline, bubble, ideal));
  }
  if (arguments.json) {
    print_json({{"seconds", measured.seconds},
                {"busy_seconds", measured.busy_seconds()},
                {"idle_over_busy", bubble},
                {"idle_over_busy_in_theory", ideal},
                {"timeline", plan::to_json(timeline)},
                {"html", arguments.html.empty() ? Json(nullptr) : Json(arguments.html)}});
    return exit_ok;
  }
  const int columns = output_is_terminal()
                          ? std::max(kLeastPipelineColumns, telemetry::stderr_console().columns())
                          : kPipelineColumns;
  print_text(fmt::format("{}\n{}\n\n{}\nidle / busy: {:.1f}%, in theory {:.1f}%\n", title, lead,
                         plan::draw_text(timeline, columns, timeline.ranks.size()), 100 * bubble,
                         100 * ideal));
  if (!arguments.html.empty()) print_text("\n" + arguments.html + "\n");
  return exit_ok;
}

}  // namespace

void add_bench_pipeline(CLI::App& group, Action& action) {
  CLI::App* command =
      group.add_subcommand("pipeline", "Draw a pipeline schedule and measure its bubble");
  const auto arguments = std::make_shared<PipelineArguments>();
  command->add_option("--pp", arguments->pp, "Pipeline stages, one thread each")
      ->capture_default_str()
      ->check(between(2, 64));
  command->add_option("--vpp", arguments->vpp, "Virtual stages per rank")
      ->capture_default_str()
      ->check(between(1, 16));
  command->add_option("--schedule", arguments->schedule, "1f1b, interleaved, zero-bubble or gpipe")
      ->capture_default_str();
  command->add_option("--micro-batches", arguments->micro_batches, "Micro-batches per step")
      ->capture_default_str()
      ->check(between(1, 1000));
  command
      ->add_option("--pass", arguments->pass_seconds,
                   "Simulated duration of each of a rank's three passes, seconds")
      ->capture_default_str()
      ->check(between(0.001, 10.0));
  command->add_option("--html", arguments->html, "Write the drawing as an HTML page")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti bench pipeline --pp 4 --schedule zero-bubble --html step.html");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_pipeline(*arguments); }; });
}

}  // namespace tutti::cli
