// `tutti serve`: the page of the control plane.
#include <fmt/format.h>
#include <sys/wait.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/client_address.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/process_output.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/job_copies.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/web/server.h"
#include "tutti/launch/home.h"

namespace tutti::cli {
namespace {

struct ServeArguments {
  ControlOptions control;
  std::string address = "127.0.0.1";
  int port = 8787;
  std::vector<std::string> hosts;
  std::vector<std::string> proxies;
  bool plain_http = false;
};

// The fields of a form as words of `tutti submit`.
std::vector<std::string> submit_words(const control::ControlFolder& folder,
                                      const control::WebSubmission& form, const std::string& recipe,
                                      bool dry_run) {
  const std::string name = !form.name.empty()     ? form.name
                           : !form.recipe.empty() ? std::string(base_name(form.recipe))
                                                  : "page";
  // With "=" and "--", so that no text of a form is taken for an option.
  std::vector<std::string> words = {"tutti", "submit", "--json", "--no-start"};
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) words.push_back(fmt::format("{}={}", option, value));
  };
  add("--control", folder.path);
  add("--name", name);
  add("--key", form.key);
  // Below the control plane, not where the server was started.
  add("--run", join_path(folder.path, "runs/" + name + "-" + form.key));
  add("--nodes", std::to_string(form.nodes));
  add("--cores", std::to_string(form.cores));
  add("--project", form.project);
  add("--time-limit", form.time_limit);
  add("--usd", form.usd);
  words.insert(words.end(), {dry_run ? "--dry-run" : "--yes", "--", recipe});
  words.insert(words.end(), form.overrides.begin(), form.overrides.end());
  return words;
}

// As a process of its own, as if its user had typed it: with his token and his client's address, in
// the environment, which no other user can read.
Json run_submit(const std::string& token, const std::string& client,
                const std::vector<std::string>& words) {
  const std::string output =
      output_of(kThisExecutable, words, {{"TUTTI_TOKEN", token}, {"TUTTI_CLIENT", client}});
  Json json = parse_json(output, "tutti submit");
  if (json.contains("error")) {
    const auto kind = json_get<std::string>(json["error"], "kind", "tutti submit");
    const auto message = json_get<std::string>(json["error"], "message", "tutti submit");
    for (const ErrorKind known :
         {ErrorKind::usage, ErrorKind::permission, ErrorKind::not_found, ErrorKind::unsupported}) {
      if (kind == error_kind_name(known)) {
        throw Error(known == ErrorKind::unsupported ? ErrorKind::usage : known, message);
      }
    }
    fail(ErrorKind::io, "tutti submit: {}", message);
  }
  return json;
}

// The text of a form as a file for as long as it is being read: jobs have their own, resolved.
class WrittenRecipe {
 public:
  WrittenRecipe(const control::ControlFolder& folder, const std::string& text)
      : path_(join_path(folder.recipes(), "page-" + control::random_hex(16) + ".yaml")) {
    posix_file_system().create_directories(folder.recipes());
    write_file_atomic(posix_file_system(), path_, text + "\n");
  }
  ~WrittenRecipe() {
    try {
      posix_file_system().remove_file(path_);
    } catch (const Error& error) {
      print_message(fmt::format("tutti: warning: {}\n", error.what()));
    }
  }
  WrittenRecipe(const WrittenRecipe&) = delete;
  WrittenRecipe& operator=(const WrittenRecipe&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

control::WebAnswer submit_from_page(const control::ControlFolder& folder, const std::string& token,
                                    const control::WebSubmission& form, bool dry_run) {
  std::optional<WrittenRecipe> written;
  if (form.recipe.empty()) written.emplace(folder, form.text);
  const Json json =
      run_submit(token, form.client,
                 submit_words(folder, form, written ? written->path() : form.recipe, dry_run));
  control::WebAnswer answer;
  const char* origin = "tutti submit";
  const auto& forecast = json_get<Json>(json, "forecast", origin);
  const auto micro = [&](const char* key, double unit) {
    return std::llround(json_get<double>(forecast, key, origin) * unit);
  };
  answer.forecast = {micro("seconds", 1e3), micro("usd", 1e6), micro("kwh", 1e6),
                     json_get<std::string>(forecast, "basis", origin)};
  answer.warnings = json_get<std::vector<std::string>>(json, "warnings", origin);
  return answer;
}

int run_serve(const ServeArguments& arguments) {
  if (!is_loopback(arguments.address) && !arguments.plain_http) {
    fail(ErrorKind::usage,
         "--address {}: tokens and pages would cross the network unencrypted; put a proxy with TLS "
         "before {}, or say --plain-http",
         arguments.address, "127.0.0.1");
  }
  watch_signals();
  control::WebOptions web;
  {
    ControlSession session(arguments.control);
    control::authorize(session.caller(), control::Action::run_controller, control::kAllProjects,
                       "page");
    web.folder = session.folder();
  }
  const control::ControlFolder folder = web.folder;
  web.address = arguments.address;
  web.port = arguments.port;
  web.hosts = arguments.hosts;
  for (const std::string& proxy : arguments.proxies) {
    web.proxies.push_back(plain_address(proxy));
    if (web.proxies.back().empty()) {
      fail(ErrorKind::usage, "--proxy {}: no address; write one such as 127.0.0.1 or ::1", proxy);
    }
  }
  web.recipes = launch::recipe_names(posix_file_system());
  web.submit = [folder](const std::string& token, const control::WebSubmission& form,
                        bool dry_run) { return submit_from_page(folder, token, form, dry_run); };
  web.controller_runs = [folder] { return controller_runs(folder); };
  web.ensure_controller = [folder] { ensure_controller(folder); };
  web.ended = [](const control::Job& job) { forget_job_copies(job.request.run_folder); };
  web.log = [](const std::string& text) { print_message("tutti: " + text + "\n"); };
  control::WebServer server(std::move(web));
  const bool is_v6 = arguments.address.find(':') != std::string::npos;
  const std::string url = fmt::format(
      "http://{}:{}/", is_v6 ? "[" + arguments.address + "]" : arguments.address, server.port());
  if (arguments.control.json) {
    print_json({{"url", url}, {"port", server.port()}, {"control", folder.path}});
  } else {
    print_text(fmt::format("{}  (Ctrl-C ends it)\n", url));
  }
  flush_output();
  std::thread waits([&] {
    while (stop_signal() == 0) {
      sleep_seconds(0.1);
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {  // controllers that have ended
      }
    }
    server.stop();
  });
  server.run();
  waits.join();
  return exit_ok;
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<ServeArguments>();
  CLI::App* command = app.add_subcommand(
      "serve", "Serve a page of jobs, runs, nodes and budgets, and metrics for Prometheus");
  command->add_option("--address", arguments->address, "Address to listen on")
      ->capture_default_str();
  command->add_option("--port", arguments->port, "Port; 0: any free one")
      ->capture_default_str()
      ->check(between(0, 65535));
  command
      ->add_option("--host", arguments->hosts,
                   "Host name that a proxy uses, besides the address and localhost")
      ->type_name("NAME");
  command
      ->add_option("--proxy", arguments->proxies,
                   "Address of a trusted proxy (X-Forwarded-For, X-Forwarded-Proto)")
      ->type_name("ADDRESS");
  command->add_flag("--plain-http", arguments->plain_http,
                    "Allow unencrypted HTTP on addresses other than loopback");
  add_control_options(*command, arguments->control);
  command->footer(
      "Users log in with a token (tutti admin token); the page enforces the same roles as the\n"
      "commands. Prometheus reads GET /metrics with `Authorization: Bearer TOKEN` of an "
      "operator.\n\n"
      "Example:\n"
      "  tutti serve --port 8787");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_serve(*arguments); }; });
}

}  // namespace tutti::cli
