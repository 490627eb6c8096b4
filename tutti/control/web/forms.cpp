#include "tutti/control/web/forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/jobs/amounts.h"
#include "tutti/control/people/visible.h"
#include "tutti/report/html.h"
#include "tutti/report/served_page.h"

namespace tutti::control {
namespace {

using report::escape_html;

constexpr const char* kFields[] = {"recipe", "text",       "overrides", "project", "name",
                                   "nodes",  "time_limit", "usd",       "cores",   "key"};

std::string field(const WebFields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : std::string(trim(found->second));
}

int64_t number(const WebFields& fields, const std::string& name, int64_t least, int64_t absent) {
  const std::string text = field(fields, name);
  if (text.empty()) return absent;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least) {
    fail(ErrorKind::usage, "{}: '{}' is not a number of at least {}", name, text, least);
  }
  return value;
}

// Line by line, since escape_html makes ends of lines visible.
std::string escape_lines(const std::string& text) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (!out.empty() || line.data() != text.data()) out += "&#10;";
    out += escape_html(ends_with(line, "\r") ? line.substr(0, line.size() - 1) : line);
  }
  return out;
}

std::string hidden(const std::string& name, const std::string& value) {
  return fmt::format("<input type=\"hidden\" name=\"{}\" value=\"{}\">", escape_html(name),
                     escape_lines(value));
}

std::string labelled(const char* name, const char* label, const std::string& html) {
  return fmt::format("<label for=\"field-{}\">{}</label>{}\n", name, escape_html(label), html);
}

std::string input(const char* name, const char* label, const WebFields& filled,
                  const char* hint = "") {
  return labelled(name, label,
                  fmt::format("<input id=\"field-{}\" name=\"{}\" value=\"{}\" placeholder=\"{}\" "
                              "autocomplete=\"off\">",
                              name, name, escape_html(field(filled, name)), escape_html(hint)));
}

std::string area(const char* name, const char* label, const WebFields& filled, int rows,
                 const char* hint) {
  return labelled(
      name, label,
      fmt::format("<textarea id=\"field-{}\" name=\"{}\" rows=\"{}\" placeholder=\"{}\" "
                  "spellcheck=\"false\">{}</textarea>",
                  name, name, rows, escape_html(hint), escape_lines(field(filled, name))));
}

std::string choice(const char* name, const char* label, const std::vector<std::string>& options,
                   const std::string& chosen) {
  std::string html = fmt::format("<select id=\"field-{}\" name=\"{}\">", name, name);
  for (const std::string& option : options) {
    html += fmt::format("<option value=\"{}\"{}>{}</option>", escape_html(option),
                        option == chosen ? " selected" : "",
                        option.empty() ? "the text below" : escape_html(option));
  }
  return labelled(name, label, html + "</select>");
}

}  // namespace

WebSubmission read_submission(const WebFields& fields) {
  WebSubmission out;
  out.recipe = field(fields, "recipe");
  out.text = field(fields, "text");
  if (out.recipe.empty() == out.text.empty()) {
    fail(ErrorKind::usage, "recipe: choose one by its name, or write one, not both");
  }
  // A path would read any file that the server may.
  const bool plain = std::all_of(out.recipe.begin(), out.recipe.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '/';
  });
  if (!plain || starts_with(out.recipe, "/")) {
    fail(ErrorKind::usage, "recipe: invalid recipe name '{}'", out.recipe);
  }
  const std::string overrides = field(fields, "overrides");
  for (const std::string_view line : split(overrides, '\n')) {
    const std::string_view assignment = trim(line);
    if (assignment.empty()) continue;
    if (assignment.find('=') == std::string_view::npos || starts_with(assignment, "-")) {
      fail(ErrorKind::usage, "keys to set: '{}' is not KEY=VALUE", assignment);
    }
    out.overrides.emplace_back(assignment);
  }
  out.project = field(fields, "project");
  if (out.project.empty()) fail(ErrorKind::usage, "project: choose the one to charge");
  out.name = field(fields, "name");
  if (out.name.find('/') != std::string::npos || out.name.find("..") != std::string::npos) {
    fail(ErrorKind::usage, "name: '{}' must not lead to other folders", out.name);
  }
  out.time_limit = field(fields, "time_limit");
  out.usd = field(fields, "usd");
  out.nodes = number(fields, "nodes", 1, 1);
  out.cores = number(fields, "cores", 0, 0);
  out.key = field(fields, "key");
  const bool is_key = !out.key.empty() && std::all_of(out.key.begin(), out.key.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
  });
  if (!is_key) fail(ErrorKind::usage, "key: the form is incomplete; reload the page");
  return out;
}

std::string login_page(const std::string& message) {
  report::Page page;
  page.kind = "Control plane";
  page.title = "Log in";
  page.lead = "With a token: `tutti admin token` makes one.";
  if (!message.empty()) page.notes.push_back(message);
  page.sections.push_back(
      {"login", "",
       "<form class=\"card form\" method=\"post\" action=\"/login\">"
       "<label for=\"token\">Token</label><input id=\"token\" name=\"token\" type=\"password\" "
       "autocomplete=\"off\" autofocus required>"
       "<button type=\"submit\">Log in</button></form>\n"});
  return report::render_served(page, kWebScript);
}

std::string submit_form(const Caller& caller, const std::vector<std::string>& recipes,
                        const std::string& form_key, const WebFields& filled) {
  const std::vector<std::string> projects = projects_where(caller, Action::submit);
  if (projects.empty()) return {};
  std::vector<std::string> names = {""};
  names.insert(names.end(), recipes.begin(), recipes.end());
  const std::string key = field(filled, "key");
  return "<form class=\"card form\" method=\"post\" action=\"/submit\">" +
         hidden("form_key", form_key) + hidden("key", key.empty() ? random_hex(12) : key) +
         choice("recipe", "Recipe", names, field(filled, "recipe")) +
         area("text", "or its text", filled, 6, "model: ...") +
         area("overrides", "Keys to set, one KEY=VALUE per line", filled, 2, "train.steps=500") +
         choice("project", "Project", projects, field(filled, "project")) +
         input("name", "Name of the job", filled) + input("nodes", "Nodes", filled, "1") +
         input("cores", "Cores of each node", filled, "all") +
         input("time_limit", "Time limit of one attempt", filled, "90min") +
         input("usd", "Budget in USD", filled, "none") +
         "<button type=\"submit\">What would it cost?</button></form>\n";
}

std::string steer_form(const Caller& caller, const std::string& form_key) {
  if (projects_where(caller, Action::steer_own).empty()) return {};
  std::string buttons;
  for (const char* what : {"cancel", "requeue", "hold", "release"}) {
    buttons +=
        fmt::format("<button type=\"submit\" name=\"what\" value=\"{}\">{}</button>", what, what);
  }
  return report::html_details(
      "A job that is not listed here",
      "<form class=\"card form row\" method=\"post\" action=\"/steer\">" +
          hidden("form_key", form_key) +
          "<label for=\"field-job\">Job</label><input id=\"field-job\" name=\"job\" "
          "inputmode=\"numeric\" autocomplete=\"off\" required>" +
          buttons + "</form>\n");
}

std::string confirm_html(const WebFields& fields, const WebAnswer& answer,
                         const std::string& form_key) {
  const WebSubmission submission = read_submission(fields);
  const Forecast& forecast = answer.forecast;
  std::string html =
      "<div class=\"card\">" +
      report::html_facts(
          {{"Recipe", submission.recipe.empty() ? "the text that you wrote" : submission.recipe},
           {"Project", submission.project},
           {"Time", format_seconds(static_cast<double>(forecast.milliseconds) / 1000)},
           {"Cost", format_usd(forecast.micro_usd)},
           {"Energy", format_energy(forecast.micro_kwh)},
           {"How this was predicted", forecast.basis}}) +
      "</div>\n";
  for (const std::string& warning : answer.warnings) {
    html += fmt::format("<p class=\"notice\">{}</p>\n", escape_html(warning));
  }
  html += "<form class=\"form row\" method=\"post\" action=\"/submit\">" +
          hidden("form_key", form_key) + hidden("confirmed", "yes");
  for (const char* name : kFields) html += hidden(name, field(fields, name));
  return html + "<button type=\"submit\">Submit</button> <a href=\"/\">Back</a></form>\n";
}

Job steer(const Caller& caller, const std::string& what, const std::string& job) {
  const int64_t id = number({{"job", job}}, "job", 1, 0);
  if (what == "cancel") return cancel(caller, id);
  if (what == "requeue") return requeue(caller, id);
  if (what == "hold") return set_held(caller, id, true);
  if (what == "release") return set_held(caller, id, false);
  fail(ErrorKind::usage, "unknown job action '{}'; known: cancel, requeue, hold, release", what);
}

}  // namespace tutti::control
