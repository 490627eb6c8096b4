// The queue on the page: what waits and runs, what has ended, and what its reader may do to each.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <utility>

#include "tutti/base/units.h"
#include "tutti/control/jobs/amounts.h"
#include "tutti/control/people/visible.h"
#include "tutti/control/web/sections.h"
#include "tutti/report/html.h"

namespace tutti::control {
namespace {

constexpr int64_t kLiveJobs = 50;  // shown at a time
constexpr int64_t kEndedJobs = 15;

constexpr std::array<std::pair<const char*, int64_t WebPages::*>, 3> kTurned = {
    {{"live", &WebPages::live}, {"ended", &WebPages::ended}, {"budgets", &WebPages::budgets}}};

const char* tone_of(JobState state) {
  switch (state) {
    case JobState::configuring:
    case JobState::running:
    case JobState::completing: return "busy";
    case JobState::completed: return "good";
    case JobState::failed:
    case JobState::timeout:
    case JobState::node_fail:
    case JobState::out_of_memory:
    case JobState::deadline: return "bad";
    default: return "quiet";
  }
}

// What its reader may ask for, job by job.
class Buttons {
 public:
  explicit Buttons(const WebView& view) : view_(view) {
    if (view.form_key.empty()) return;
    for (std::string& name : projects_where(view.caller, Action::steer_own)) own_.insert(name);
    for (std::string& name : projects_where(view.caller, Action::steer_any)) any_.insert(name);
    for (std::string& name : projects_where(view.caller, Action::deploy)) deploys_.insert(name);
  }

  bool has_any() const { return !own_.empty() || !any_.empty(); }

  std::string of(const Job& job) const {
    const std::string& project = job.request.project;
    const bool mine = job.user == view_.caller.user && own_.count(project) > 0;
    const bool may_steer =
        job.request.deployment ? deploys_.count(project) > 0 : mine || any_.count(project) > 0;
    if (!may_steer) return {};
    std::string buttons;
    for (const char* what : choices(job)) {
      buttons += fmt::format(
          "<button type=\"submit\" name=\"what\" value=\"{}\" aria-label=\"{} job "
          "{}\">{}</button>",
          what, what, job.id, what);
    }
    if (buttons.empty()) return {};
    return fmt::format(
        "<form class=\"do\" method=\"post\" action=\"/steer\"><input type=\"hidden\" "
        "name=\"form_key\" value=\"{}\"><input type=\"hidden\" name=\"job\" value=\"{}\">{}"
        "</form>",
        report::escape_html(view_.form_key), job.id, buttons);
  }

 private:
  static std::vector<const char*> choices(const Job& job) {
    if (job.state == JobState::pending) return {job.held ? "release" : "hold", "cancel"};
    if (job.state == JobState::completing) return {};
    if (owns_nodes(job.state)) return {"requeue", "cancel"};
    if (is_final(job.state)) return {"requeue"};
    return {};
  }

  const WebView& view_;
  std::set<std::string> own_;
  std::set<std::string> any_;
  std::set<std::string> deploys_;
};

report::Table job_table(const std::vector<Job>& jobs, const std::string& caption,
                        const Buttons& buttons) {
  report::Table table;
  table.caption = caption;
  table.show_caption = true;
  table.columns = {{"Job", true},
                   {"Name"},
                   {"User"},
                   {"Project"},
                   {"State", false, true, true},
                   {"Why"},
                   {"Nodes", true},
                   {"Ran", true},
                   {"Forecast", true},
                   {"Submitted (UTC)", false, true}};
  if (buttons.has_any()) table.columns.push_back({"Ask for", false, true, true});
  table.rows.reserve(jobs.size());
  for (const Job& job : jobs) {
    std::string why = job.reason == Reason::none ? "" : reason_name(job.reason);
    if (!job.detail.empty()) why += (why.empty() ? "" : ": ") + job.detail;
    const int64_t ran_ms = job.run_ms + (owns_nodes(job.state) ? job.elapsed_ms : 0);
    std::vector<std::string> row = {std::to_string(job.id),
                                    job.request.name,
                                    job.user,
                                    job.request.project,
                                    state_html(job.state),
                                    why,
                                    std::to_string(job.request.nodes),
                                    took(ran_ms),
                                    took(job.request.forecast.milliseconds),
                                    format_day_time(job.submitted_ms)};
    if (buttons.has_any()) row.push_back(buttons.of(job));
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

std::string took(int64_t milliseconds) {
  return milliseconds == 0 ? "–" : format_seconds(static_cast<double>(milliseconds) / 1000);
}

std::string state_html(JobState state) {
  return fmt::format("<span class=\"state {}\">{}</span>", tone_of(state), state_name(state));
}

WebPages read_pages(const std::map<std::string, std::string>& query) {
  WebPages pages;
  for (const auto& [name, table] : kTurned) {
    const auto found = query.find(name);
    if (found == query.end()) continue;
    int64_t value = 0;
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), value);
    pages.*table = std::clamp<int64_t>(value, 0, int64_t{1} << 40);
  }
  return pages;
}

std::string pages_html(const WebPages& pages, int64_t WebPages::*table, int64_t most, int64_t count,
                       const char* section) {
  if (count <= most && pages.*table == 0) return {};
  const auto turn_to = [&](int64_t first, const char* text) {
    WebPages there = pages;
    there.*table = first;
    std::string address = "/?";
    for (const auto& [name, each] : kTurned) {
      if (there.*each > 0) address += fmt::format("{}={}&amp;", name, there.*each);
    }
    return fmt::format("<a href=\"{}#{}\">{}</a> ", address, section, text);
  };
  const int64_t first = pages.*table;
  std::string out = fmt::format("<p class=\"note\">{} to {} of {}. ", std::min(first + 1, count),
                                std::min(first + most, count), count);
  if (first > 0) {
    out += turn_to(0, "First") + turn_to(std::max<int64_t>(0, first - most), "Previous");
  }
  if (first + most < count) out += turn_to(first + most, "Next");
  return out + "</p>\n";
}

std::string queue_html(const WebView& view) {
  JobFilter filter;
  filter.which = JobFilter::Which::live;
  filter.skip = view.pages.live;
  filter.most = kLiveJobs;
  const std::vector<Job> live = visible_jobs(view.caller, filter);
  const int64_t live_count = count_visible(view.caller, filter);
  const JobTally tally = tally_visible(view.caller);
  filter.which = JobFilter::Which::ended;
  filter.skip = view.pages.ended;
  filter.most = kEndedJobs;
  const std::vector<Job> ended = visible_jobs(view.caller, filter);
  const int64_t ended_count = count_visible(view.caller, filter);
  const Buttons buttons(view);
  std::string out;
  if (tally.waiting > 0 && !view.controller_runs) {
    out += "<p class=\"notice\">No controller is running: pending jobs do not start.</p>\n";
  }
  const auto table = [&](const std::vector<Job>& jobs, const char* caption,
                         int64_t WebPages::*turned, int64_t most, int64_t count) {
    out += "<div class=\"card\">" + report::html_table(job_table(jobs, caption, buttons)) +
           pages_html(view.pages, turned, most, count, "queue") + "</div>\n";
  };
  if (live_count == 0) {
    out += "<p class=\"empty\">The queue is empty.</p>\n";
  } else {
    table(live, "Pending and running", &WebPages::live, kLiveJobs, live_count);
  }
  if (ended_count > 0) {
    table(ended, "Ended, newest first", &WebPages::ended, kEndedJobs, ended_count);
  }
  return out;
}

}  // namespace tutti::control
