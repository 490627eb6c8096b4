// `tutti controller`: the process that launches pending jobs and monitors running ones; backups.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/launched.h"
#include "tutti/base/signals.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/job_copies.h"
#include "tutti/cli/data/label.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/controller/node_health.h"
#include "tutti/control/controller/node_report.h"
#include "tutti/control/launches/fault_files.h"
#include "tutti/control/launches/local_launcher.h"
#include "tutti/control/launches/supervisor.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/slurm/launcher.h"
#include "tutti/object/file_system.h"

namespace tutti::cli {
namespace {

constexpr double kTickSeconds = 0.5;
// A controller that ends by itself waits so long for the next submission.
constexpr double kIdleSeconds = 5;
constexpr double kClusterSeconds = 5;  // between two looks at the nodes
constexpr double kLockSeconds = 2;     // others look at the lock for an instant

struct RunArguments {
  ControlOptions control;
  bool until_idle = false;
};

// What starts jobs here.
std::unique_ptr<control::Launcher> make_launcher(const control::Site& site,
                                                 const control::ControlFolder& folder) {
  FileSystem& files = posix_file_system();
  if (!site.slurm) {
    const std::vector<std::string> supervisor = {kThisExecutable, "tutti", "supervise"};
    return std::make_unique<control::LocalLauncher>(files, folder.jobs(), supervisor);
  }
  // The path is the same on all nodes.
  const std::string program = std::filesystem::read_symlink(kThisExecutable);
  return std::make_unique<control::SlurmLauncher>(
      files, folder.jobs(), std::vector<std::string>{program, "supervise"},
      control::SlurmSettings{site.slurm_partition, site.slurm_account});
}

// Slurm takes nodes out of use by itself.
void follow_checks(ControlSession& session) {
  control::follow_health(session.database(),
                         control::read_node_reports(posix_file_system(), session.folder().health()),
                         wall_milliseconds());
}

// Until a signal, or with `until_idle` until nothing is left to do. Returns how many rounds it
// made.
int64_t look_after_jobs(ControlSession& session, bool until_idle) {
  const control::Site site = session.site();
  const auto launcher = make_launcher(site, session.folder());
  control::Controller controller(
      session.database(), *launcher,
      [](const control::Job& job) { forget_job_copies(job.request.run_folder); },
      [](const control::Job& job) { return label_of_job(object::file_system(), job.request); });
  print_message(
      fmt::format("{} controller of {}\n", format_utc(wall_seconds()), session.folder().path));
  double idle_since = monotonic_seconds();
  double next_look = 0;
  int64_t incidents = 0;  // of which there are files
  int64_t ticks = 0;
  while (stop_signal() == 0) {
    try {
      if (monotonic_seconds() >= next_look) {
        next_look = monotonic_seconds() + kClusterSeconds;
        if (site.slurm) {
          follow_slurm(session);
        } else {
          follow_checks(session);
        }
      }
      const control::TickResult result = controller.tick(wall_milliseconds());
      incidents = control::write_incident_files(session.database(), posix_file_system(),
                                                session.folder().incidents(), incidents);
      ++ticks;
      if (result.changes > 0) {
        print_message(fmt::format("{} {} changes; {} jobs wait, {} are active\n",
                                  format_utc(wall_seconds()), result.changes, result.waiting,
                                  result.active));
        control::export_audit(session.database(), posix_file_system(), session.folder().audit());
      }
      const bool idle = result.active == 0 && result.startable == 0;
      if (!idle) idle_since = monotonic_seconds();
      if (until_idle && monotonic_seconds() - idle_since > kIdleSeconds) break;
    } catch (const Error& error) {
      // A lock, a full disk: running jobs continue, and the next round retries. Damage does not
      // heal.
      print_message(fmt::format("{} {}\n", format_utc(wall_seconds()), error.what()));
      if (error.kind() == ErrorKind::corrupt) throw;
    }
    sleep_seconds(kTickSeconds);
  }
  return ticks;
}

int run_controller(const RunArguments& arguments) {
  watch_signals();
  ControlSession session(arguments.control, true);
  control::authorize(session.caller(), control::Action::run_controller, control::kAllProjects,
                     "controller");
  int64_t ticks = 0;
  do {
    const auto lock = take_lock(session.folder().lock(), kLockSeconds);
    if (lock == nullptr) {
      if (ticks > 0) break;  // another has taken over
      fail(ErrorKind::usage, "a controller runs in '{}' already", session.folder().path);
    }
    ticks += look_after_jobs(session, arguments.until_idle);
    // A submitter during that lock relies on this controller.
  } while (stop_signal() == 0 && !control::is_idle(session.database(), wall_milliseconds()));
  if (arguments.control.json) print_json({{"ticks", ticks}, {"signal", stop_signal()}});
  return exit_ok;
}

struct BackupArguments {
  ControlOptions control;
  std::string file;
};

// Writing a backup over its own source would destroy both.
void check_is_elsewhere(const control::ControlFolder& folder, const std::string& file) {
  namespace fs = std::filesystem;
  const std::string database = folder.database();
  for (const std::string& own : {database, database + "-wal", database + "-shm", folder.audit(),
                                 folder.lock(), folder.log()}) {
    std::error_code unknown;
    if (!fs::equivalent(file, own, unknown) && absolute(file) != own) continue;
    fail(ErrorKind::usage, "'{}' is the control plane's own; name another file", file);
  }
}

int run_backup(const BackupArguments& arguments) {
  ControlSession session(arguments.control);
  check_is_elsewhere(session.folder(), arguments.file);
  control::authorize(session.caller(), control::Action::run_controller, control::kAllProjects,
                     "backup");
  session.database().check_integrity();
  control::verify_ledger(session.database());
  session.database().copy_to(arguments.file);
  const control::AuditHead head = control::audit_head(session.database());
  if (arguments.control.json) {
    print_json({{"file", arguments.file}, {"audit_seq", head.seq}, {"audit_hash", head.hash}});
  } else {
    print_text(fmt::format("{}: intact; audit log up to line {} {}\n", arguments.file, head.seq,
                           head.hash));
  }
  return exit_ok;
}

void add_supervise(CLI::App& app, Action& action) {
  struct Arguments {
    std::string folder;
    int64_t generation = 0;
  };
  const auto arguments = std::make_shared<Arguments>();
  // Of the controller; not for people.
  CLI::App* command = app.add_subcommand("supervise", "")->group("");
  command->add_option("FOLDER", arguments->folder, "")->required();
  command->add_option("GENERATION", arguments->generation, "")->required();
  command->callback([arguments, &action] {
    action = [arguments] {
      watch_signals();
      leave_ending_to_launcher();
      return control::supervise(
          posix_file_system(), arguments->folder, arguments->generation, kThisExecutable,
          [](const control::LaunchOrder& order, std::optional<int> exit_code) {
            clear_job_copies(order.command, exit_code);
          });
    };
  });
}

}  // namespace

void add_controller(CLI::App& app, Action& action) {
  CLI::App* group =
      app.add_subcommand("controller", "Launch pending jobs and monitor running ones");
  group->require_subcommand(1);
  group->footer("Example:\n  tutti controller run");

  const auto run = std::make_shared<RunArguments>();
  CLI::App* command = group->add_subcommand("run", "Run the controller until it is stopped");
  command->add_flag("--until-idle", run->until_idle, "Exit when no job can start and none runs");
  add_control_options(*command, run->control);
  command->footer(
      "Ctrl-C or SIGTERM ends it; jobs keep running, and the next controller monitors them.\n\n"
      "Example:\n  tutti controller run");
  command->callback([run, &action] { action = [run] { return run_controller(*run); }; });

  const auto backup = std::make_shared<BackupArguments>();
  command = group->add_subcommand("backup", "Check and back up the database while jobs run");
  command->add_option("FILE", backup->file, "Where to")->required();
  add_control_options(*command, backup->control);
  command->footer(
      "To restore: `tutti controller restore FILE`.\n\nExample:\n  tutti controller backup "
      "control-backup.db");
  command->callback([backup, &action] { action = [backup] { return run_backup(*backup); }; });
  add_controller_restore(*group, action);

  add_supervise(app, action);
}

}  // namespace tutti::cli
