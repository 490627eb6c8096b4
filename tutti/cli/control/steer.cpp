// `tutti cancel`, `requeue`, `hold`, `release`: what people do to jobs.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/job_copies.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/jobs/requests.h"

namespace tutti::cli {
namespace {

using Steer = control::Job (*)(const control::Caller& caller, int64_t id);

control::Job hold(const control::Caller& caller, int64_t id) {
  return control::set_held(caller, id, true);
}
control::Job release(const control::Caller& caller, int64_t id) {
  return control::set_held(caller, id, false);
}

struct SteerArguments {
  ControlOptions control;
  int64_t job = 0;
};

int run_steer(const SteerArguments& arguments, Steer steer) {
  ControlSession session(arguments.control);
  const control::Job job = steer(session.caller(), arguments.job);
  if (control::is_final(job.state)) forget_job_copies(job.request.run_folder);
  // A controller must carry out the request.
  const bool to_do = !control::is_final(job.state) && !job.held;
  const bool started = to_do && ensure_controller(session.folder());
  if (arguments.control.json) {
    Json json = job_json(job);
    json["controller_started"] = started;
    print_json(json);
  } else {
    print_text(fmt::format("job {}: {} ({})\n", job.id, control::state_name(job.state),
                           control::reason_name(job.reason)));
  }
  return exit_ok;
}

void add_steer(CLI::App& app, Action& action, const char* name, const char* what, Steer steer) {
  const auto arguments = std::make_shared<SteerArguments>();
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("JOB", arguments->job, "Its number")->required();
  add_control_options(*command, arguments->control);
  command->footer(fmt::format("Example:\n  tutti {} 7", name));
  command->callback([arguments, &action, steer] {
    action = [arguments, steer] { return run_steer(*arguments, steer); };
  });
}

}  // namespace

void add_job_steering(CLI::App& app, Action& action) {
  add_steer(app, action, "cancel", "Cancel a job; a running one saves and stops", &control::cancel);
  add_steer(app, action, "requeue", "Requeue a job; a running one saves and stops",
            &control::requeue);
  add_steer(app, action, "hold", "Hold a pending job", &hold);
  add_steer(app, action, "release", "Release a held job", &release);
}

}  // namespace tutti::cli
