#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/report/format.h"
#include "tutti/report/html.h"
#include "tutti/report/run_sections.h"

namespace tutti::report {
namespace {

constexpr size_t kShownRows = 400;  // of a table; the newest are shown
constexpr size_t kSlowestSteps = 10;
constexpr size_t kOpenRows = 12;  // longer tables start closed

using Facts = std::vector<std::pair<std::string, std::string>>;

std::string seconds_text(double seconds) { return format_value(Quantity::seconds, seconds); }
std::string bytes_text(int64_t bytes) {
  return bytes > 0 ? format_bytes(static_cast<double>(bytes)) : std::string();
}
std::string count_text(int64_t count) { return count > 0 ? format_integer(count) : std::string(); }

// A table that is closed where it is long, and says what it leaves out.
std::string long_table(const std::string& summary, Table table) {
  const size_t rows = table.rows.size();
  if (rows > kShownRows) {
    table.rows.erase(table.rows.begin(),
                     table.rows.end() - static_cast<std::ptrdiff_t>(kShownRows));
    table.caption +=
        fmt::format(": the last {} of {}", kShownRows, format_integer(static_cast<int64_t>(rows)));
    table.show_caption = true;
  }
  return rows <= kOpenRows ? html_table(table) : html_details(summary, html_table(table));
}

std::string outcome_text(const std::string& outcome) {
  std::string text = outcome;
  std::replace(text.begin(), text.end(), '_', ' ');
  return text.empty() ? "ended without a word" : text;
}

std::string used_of(double used, double limit, const char* unit) {
  return limit > 0 ? fmt::format("{:.3g} of {:.6g} {}", used, limit, unit)
                   : fmt::format("{:.3g} {}, no limit", used, unit);
}

double number(const std::string& text) {
  try {
    return std::stod(text);
  } catch (const std::exception&) {
    return 0;
  }
}

Facts budget_facts(const RunData& run, const RunSummary& summary) {
  const auto value = [&](const char* key) {
    return number(run.recipe_value(std::string("run.budget.") + key));
  };
  const double hours = summary.train_seconds / 3600;
  const double limit = value("hours");
  Facts facts = {
      {"Budget, time", format_seconds(summary.train_seconds) +
                           (limit > 0 ? fmt::format(" of {:.6g} h", limit) : ", no limit")}};
  if (value("usd_per_hour") > 0) {
    facts.emplace_back("Budget, money",
                       used_of(hours * value("usd_per_hour"), value("usd"), "USD"));
  }
  if (value("average_watts") > 0) {
    facts.emplace_back(
        "Budget, energy",
        used_of(hours * value("average_watts") / 1000, value("kwh"), "kWh") + " (estimated)");
  }
  return facts;
}

std::string detail(const RunData& run, const char* key) {
  if (!run.started) return {};
  const auto found = run.started->details.find(key);
  if (found == run.started->details.end()) return {};
  return found->is_string() ? found->get<std::string>() : dump_json(*found);
}

// What the run says of itself, else what its recipe says.
std::string note_of(const RunData& run, const char* key) {
  const std::string text = detail(run, key);
  return text.empty() ? run.recipe_value(std::string("run.") + key) : text;
}

// escape_html would show the ends of lines as bytes.
std::string escape_lines(std::string_view text) {
  std::string html;
  for (const std::string_view line : split(text, '\n')) html += escape_html(line) + "\n";
  return html;
}

// Empty without a teacher.
std::string teacher_card(const RunData& run) {
  if (!run.started || !run.started->teacher) return "";
  const telemetry::TeacherDescribed& t = *run.started->teacher;
  return html_card("Teacher",
                   html_facts({{"Checkpoint", t.path},
                               {"Step", format_integer(t.step)},
                               {"Model", t.model},
                               {"Parameters", count_text(t.parameters)},
                               {"Hash of its manifest (XXH3)", t.manifest_hash},
                               {"Loss", fmt::format("{:.4g} cross-entropy + {:.4g} divergence at "
                                                    "temperature {:.4g}",
                                                    1 - t.weight, t.weight, t.temperature)}}));
}

}  // namespace

std::string evaluation_table(const RunData& run, const RunSummary& summary) {
  if (run.evaluations.empty()) return "<p class=\"empty\">No evaluation is recorded.</p>\n";
  Table table{"Evaluations",
              false,
              {{"Step", true},
               {"Loss", true},
               {"Perplexity", true},
               {"Tokens", true},
               {"Took", true},
               {"At", true},
               {""}},
              {}};
  for (const auto& evaluation : run.evaluations) {
    const telemetry::EvaluationDone& e = evaluation.body;
    std::string remark;
    if (e.step == summary.best_step) remark = "best";
    if (summary.target_loss && e.loss <= *summary.target_loss) {
      remark += remark.empty() ? "target reached" : ", target reached";
    }
    table.rows.push_back({format_integer(e.step), format_value(Quantity::loss, e.loss),
                          format_value(Quantity::number, std::exp(e.loss)), count_text(e.tokens),
                          seconds_text(e.seconds), seconds_text(evaluation.train_seconds), remark});
  }
  return long_table(fmt::format("All {} evaluations",
                                format_integer(static_cast<int64_t>(run.evaluations.size()))),
                    std::move(table));
}

std::string checkpoint_table(const RunData& run, const RunSummary& summary) {
  if (run.checkpoints.empty() && run.failed_checkpoints.empty()) {
    return "<p class=\"empty\">No checkpoint is recorded.</p>\n";
  }
  Table table{"Checkpoints",
              false,
              {{"Step", true},
               {"Size", true},
               {"Training waited", true},
               {"Durable after", true},
               {"Folder"}},
              {}};
  for (const auto& saved : run.checkpoints) {
    const telemetry::CheckpointSaved& c = saved.body;
    table.rows.push_back({format_integer(c.step), bytes_text(c.bytes),
                          seconds_text(c.stall_seconds), seconds_text(c.write_seconds), c.path});
  }
  for (const auto& failed : run.failed_checkpoints) {
    table.rows.push_back(
        {format_integer(failed.body.step), "not saved", "", "", failed.body.message});
  }
  const double share =
      summary.train_seconds > 0 ? summary.checkpoint_stall_seconds / summary.train_seconds : 0;
  const std::string summary_line =
      fmt::format("All {} checkpoints", format_integer(static_cast<int64_t>(table.rows.size())));
  return fmt::format(
             "<p class=\"note\">Training waited {} for {} checkpoint{}, {:.2g}% of its "
             "time.</p>\n",
             seconds_text(summary.checkpoint_stall_seconds), run.checkpoints.size(),
             run.checkpoints.size() == 1 ? "" : "s", 100 * share) +
         long_table(summary_line, std::move(table));
}

std::string slowest_steps_table(const RunData& run) {
  const StepSeries& steps = run.steps;
  std::vector<size_t> order(steps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t i) { return !std::isfinite(steps.step_seconds[i]); });
  const size_t count = std::min(order.size(), kSlowestSteps);
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](size_t a, size_t b) { return steps.step_seconds[a] > steps.step_seconds[b]; });
  order.resize(count);
  Table table{"Slowest steps",
              false,
              {{"Step", true}, {"Took", true}, {"of which data", true}, {"Ended at", false, true}},
              {}};
  for (const size_t i : order) {
    table.rows.push_back({format_integer(std::llround(steps.step[i])),
                          seconds_text(steps.step_seconds[i]),
                          seconds_text(steps.data_wait_seconds[i]), format_utc(steps.wall[i])});
  }
  return html_details("Slowest steps", html_table(table));
}

std::string incidents_section(const RunData& run) {
  struct Incident {
    double wall;
    std::string what;
    std::string text;
  };
  std::vector<Incident> incidents;
  for (const RunPart& part : run.parts) {
    const bool resumed = part.first_step > 0;
    incidents.push_back({part.begin_wall, resumed ? "Resumed" : "Started",
                         resumed ? "after step " + format_integer(part.first_step) : ""});
    incidents.push_back(
        {part.end_wall, part.outcome.empty() ? "Last word" : "Ended",
         fmt::format("step {}{}", format_integer(part.last_step),
                     part.outcome.empty() ? "" : ", " + outcome_text(part.outcome))});
  }
  for (const auto& e : run.non_finite) {
    incidents.push_back({e.wall, "Step skipped",
                         fmt::format("step {}: gradient of {} not finite, {} in a row",
                                     format_integer(e.body.step), e.body.tensor, e.body.in_a_row)});
  }
  for (const auto& e : run.failed_checkpoints) {
    incidents.push_back({e.wall, "Checkpoint failed",
                         fmt::format("step {}: {}", format_integer(e.body.step), e.body.message)});
  }
  for (const auto& e : run.over_budget) {
    incidents.push_back(
        {e.wall, "Over budget",
         fmt::format("{:.6g} {} used, {:.6g} allowed", e.body.used, e.body.what, e.body.limit)});
  }
  for (const auto& e : run.warnings) incidents.push_back({e.wall, "Warning", e.body.text});
  std::stable_sort(incidents.begin(), incidents.end(),
                   [](const Incident& a, const Incident& b) { return a.wall < b.wall; });
  Table table{"Fault", false, {{"Time", false, true}, {"What", false, true}, {"Details"}}, {}};
  for (const Incident& incident : incidents) {
    table.rows.push_back({format_utc(incident.wall), incident.what, incident.text});
  }
  std::string out;
  if (run.repeated_steps > 0) {
    out = fmt::format(
        "<p class=\"note\">{} steps were done again after a resume; the curves show "
        "the later ones.</p>\n",
        format_integer(run.repeated_steps));
  }
  const std::string summary_line =
      fmt::format("All {} entries", format_integer(static_cast<int64_t>(table.rows.size())));
  return html_card("Fault", out + long_table(summary_line, std::move(table)));
}

std::string data_section(const RunData& run) {
  if (run.corpora.empty()) {
    return html_card("Data", html_facts({{"Training", run.recipe_value("data.train")},
                                         {"Validation", run.recipe_value("data.validation")}})) +
           teacher_card(run);
  }
  std::string out;
  for (const telemetry::CorpusDescribed& c : run.corpora) {
    std::string facts = html_facts(
        {{"Corpus", c.path},
         {"Tokens", count_text(c.tokens)},
         {"Documents", count_text(c.documents)},
         {"Size", bytes_text(c.bytes)},
         {"Hash (XXH3)", c.hash},
         {"Tokenizer", c.vocabulary_size > 0 ? fmt::format("{}, {} ids", c.tokenizer,
                                                           format_integer(c.vocabulary_size))
                                             : c.tokenizer},
         {"Tokenizer hash", c.tokenizer_hash},
         {"Prepared", c.created},
         {"Licence", c.licence},
         {"Data class", c.data_class}});
    if (!c.sources.empty()) {
      Table table{"Sources of " + c.path,
                  false,
                  {{"Source"},
                   {"Size", true},
                   {"Documents", true},
                   {"Tokens", true},
                   {"Licence"},
                   {"Class"},
                   {"Hash"}},
                  {}};
      for (const telemetry::CorpusSource& s : c.sources) {
        table.rows.push_back({s.path, bytes_text(s.bytes), count_text(s.documents),
                              count_text(s.tokens), s.licence, s.data_class, s.hash});
      }
      facts += html_details(
          fmt::format("{} source{}", c.sources.size(), c.sources.size() == 1 ? "" : "s"),
          html_table(table), c.sources.size() <= 6);
    }
    std::string title = c.role.empty() ? "Corpus" : c.role + " data";
    title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
    out += html_card(title, facts);
  }
  out += teacher_card(run);
  return "<div class=\"grid2\">" + out + "</div>\n";
}

std::string machine_section(const RunData& run, const RunSummary& summary) {
  Facts owner = {{"Run", summary.name},
                 {"Folder", run.folder},
                 {"Owner", note_of(run, "owner")},
                 {"Project", note_of(run, "project")},
                 {"Data class", note_of(run, "data_class")},
                 {"Parameters", count_text(summary.parameters)}};
  for (auto& fact : budget_facts(run, summary)) owner.push_back(std::move(fact));

  Facts machine;
  if (run.machine) {
    const telemetry::MachineDescribed& m = *run.machine;
    machine = {{"Host", m.host},
               {"Processor", m.cpu},
               {"Cores", fmt::format("{}, {} threads used", m.cores, m.threads)},
               {"Clock", m.clock_hz > 0 ? fmt::format("{:.2f} GHz nominal", m.clock_hz / 1e9) : ""},
               {"Memory", bytes_text(m.memory_bytes)},
               {"Instructions", m.instruction_set},
               {"Precision", m.precision},
               {"Tutti", m.version},
               {"Program (XXH3)", m.executable_hash}};
  } else {
    machine = {{"Host", detail(run, "host")},
               {"Processor", detail(run, "cpu")},
               {"Cores", detail(run, "cores")},
               {"Instructions", detail(run, "instruction_set")}};
  }
  const auto flops = [](double x) { return x > 0 ? format_flops(x) : std::string("not measured"); };
  machine.emplace_back("Peak, measured", flops(summary.gemm_peak_flops));
  if (run.machine) machine.emplace_back("Peak, nominal", flops(run.machine->nominal_peak_flops));
  return "<div class=\"grid2\">" + html_card("Run", html_facts(owner)) +
         html_card("Machine", html_facts(machine)) + "</div>\n";
}

std::string samples_section(const RunData& run) {
  if (run.samples.empty()) return "";
  std::string html;
  for (const auto& sample : run.samples) {
    const telemetry::TextGenerated& s = sample.body;
    html += html_details(fmt::format("After step {}", format_integer(s.step)),
                         "<pre tabindex=\"0\">" + escape_lines(s.prompt + s.text) + "</pre>",
                         &sample == &run.samples.front() || &sample == &run.samples.back());
  }
  return "<div class=\"card\">" + html + "</div>\n";
}

std::string recipe_section(const RunData& run) {
  if (run.recipe_yaml.empty()) return "<p class=\"empty\">The run folder holds none.</p>\n";
  return "<div class=\"card\">" +
         html_details(fmt::format("The resolved recipe, {} keys", run.recipe.size()),
                      "<pre tabindex=\"0\">" + escape_lines(run.recipe_yaml) + "</pre>") +
         "</div>\n";
}

}  // namespace tutti::report
