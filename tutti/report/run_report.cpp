#include "tutti/report/run_report.h"

#include <fmt/format.h>

#include "tutti/base/clock.h"
#include "tutti/base/units.h"
#include "tutti/report/format.h"
#include "tutti/report/html.h"
#include "tutti/report/run_sections.h"

namespace tutti::report {
namespace {

std::string loss_text(double loss) { return format_value(Quantity::loss, loss); }

std::string status_text(const RunSummary& s) {
  switch (s.state) {
    case RunState::running: return "Still running";
    case RunState::broken: return "Ended without a word";
    case RunState::finished: break;
  }
  if (s.outcome == "target_reached") return "Target reached";
  if (s.outcome == "steps_done")
    return s.target_loss ? "All steps done, target missed" : "All steps done";
  if (s.outcome == "over_budget") return "Stopped: over budget";
  if (s.outcome == "stopped") return "Stopped on request";
  return s.outcome.empty() ? "Finished" : s.outcome;
}

Page::Tone tone_of(const RunSummary& s) {
  if (s.state == RunState::broken) return Page::Tone::bad;
  if (s.time_to_target_seconds) return Page::Tone::good;
  if (s.outcome == "steps_done") return s.target_loss ? Page::Tone::bad : Page::Tone::good;
  return Page::Tone::neutral;
}

std::string lead_text(const RunSummary& s) {
  std::string text = fmt::format("{} parameters trained on {} tokens in {} steps, {}.",
                                 format_count(static_cast<double>(s.parameters)),
                                 format_count(static_cast<double>(s.tokens)),
                                 format_integer(s.steps), format_seconds(s.train_seconds));
  if (s.target_loss && s.time_to_target_seconds) {
    text += fmt::format(" The validation loss fell to the target of {} after {}.",
                        loss_text(*s.target_loss), format_seconds(*s.time_to_target_seconds));
  } else if (s.target_loss && s.best_validation_loss) {
    text += fmt::format(" The target, a validation loss of {}, was not reached; the best was {}.",
                        loss_text(*s.target_loss), loss_text(*s.best_validation_loss));
  }
  return text;
}

std::vector<Tile> tiles_of(const RunSummary& s) {
  std::vector<Tile> tiles;
  if (s.validation_loss) {
    const std::string note =
        *s.best_validation_loss < *s.validation_loss
            ? fmt::format("best {} at step {}", loss_text(*s.best_validation_loss),
                          format_integer(s.best_step))
            : fmt::format("the best, at step {}", format_integer(s.best_step));
    tiles.push_back({"Validation loss", loss_text(*s.validation_loss), note});
  }
  if (s.final_loss) tiles.push_back({"Training loss", loss_text(*s.final_loss), "last step"});
  if (s.time_to_target_seconds) {
    tiles.push_back({"Time to target", format_seconds(*s.time_to_target_seconds),
                     "to loss " + loss_text(*s.target_loss) + ", evaluation included"});
  } else {
    tiles.push_back({"Training time", format_seconds(s.train_seconds), "evaluation included"});
  }
  if (s.tokens_per_second > 0) {
    tiles.push_back(
        {"Speed", format_value(Quantity::rate, s.tokens_per_second), "tokens per second"});
  }
  if (s.mfu > 0) {
    tiles.push_back({"MFU", format_value(Quantity::ratio, s.mfu), "of the measured peak"});
  }
  if (s.peak_memory_bytes > 0) {
    tiles.push_back(
        {"Memory", format_bytes(static_cast<double>(s.peak_memory_bytes)), "peak of the process"});
  }
  return tiles;
}

}  // namespace

Page run_page(const RunData& run, const RunSummary& s, double made_wall_seconds) {
  Page page;
  page.kind = "Training run";
  page.title = s.name;
  page.status = status_text(s);
  page.tone = tone_of(s);
  page.lead = lead_text(s);
  page.notes = s.notes;
  page.tiles = tiles_of(s);
  page.sections = {
      {"loss", "Loss", loss_section(run, s)},
      {"speed", "Speed and memory", speed_section(run, s) + slowest_steps_table(run)},
      {"optimizer", "Optimizer", optimizer_section(run, s)},
      {"course", "Course of the run", timeline_section(run)},
      {"evaluations", "Evaluations and checkpoints",
       "<div class=\"grid2\">" + html_card("Evaluations", evaluation_table(run, s)) +
           html_card("Checkpoints", checkpoint_table(run, s)) + "</div>\n" +
           incidents_section(run)},
      {"place", "Run and machine", machine_section(run, s)},
      {"data", "Data", data_section(run)},
      {"recipe", "Recipe", recipe_section(run)},
  };
  if (const std::string gpus = gpu_section(run); !gpus.empty()) {
    page.sections.insert(page.sections.begin() + 3, {"gpus", "GPUs", gpus});
  }
  if (const std::string samples = samples_section(run); !samples.empty()) {
    page.sections.insert(page.sections.begin() + 1, {"samples", "What it writes", samples});
  }
  page.footer =
      fmt::format("Made {} from {}/events.jsonl{}", format_utc(made_wall_seconds), run.folder,
                  run.machine ? " by Tutti " + run.machine->version : std::string());
  return page;
}

}  // namespace tutti::report
