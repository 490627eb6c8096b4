// `tutti controller restore`: replaces the records by a backup.
#include "tutti/control/audit/restore.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::cli {
namespace {

constexpr double kRestoreLockSeconds = 2;  // others look at the lock for an instant

struct RestoreArguments {
  ControlOptions control;
  std::string file;
};

int run_restore(const RestoreArguments& arguments) {
  FileSystem& files = posix_file_system();
  const control::ControlFolder folder = folder_of(arguments.control);
  const std::string backup = absolute(arguments.file);
  // Before anything is made.
  if (!files.exists(backup)) fail(ErrorKind::not_found, "'{}' is not there", backup);
  control::make_private(files, folder);
  const auto lock = take_lock(folder.lock(), kRestoreLockSeconds);
  if (lock == nullptr) {
    fail(ErrorKind::usage, "a controller runs in '{}'; end it first, then restore", folder.path);
  }
  std::string user;
  control::Restored restored = control::restore(
      files, folder, backup, wall_milliseconds(), [&](control::Database& database) {
        const control::Caller caller = caller_in(database);
        control::authorize(caller, control::Action::run_controller, control::kAllProjects,
                           "restore");
        user = caller.user;
      });
  control::Database& database = *restored.database;
  {
    control::Transaction transaction(database);
    control::note({database, user, wall_milliseconds()}, "restore", "place", true,
                  {{"file", backup},
                   {"kept", restored.kept},
                   {"trail_written_anew", restored.log_rewritten}});
    transaction.commit();
  }
  control::export_audit(database, files, folder.audit());
  control::verify_ledger(database);
  const size_t live = control::live_jobs(database).size();
  if (arguments.control.json) {
    print_json({{"file", backup},
                {"kept", restored.kept},
                {"lines_taken_over", restored.lines},
                {"trail_written_anew", restored.log_rewritten},
                {"not_repeated", restored.not_repeated},
                {"live_jobs", live}});
    return exit_ok;
  }
  std::string text = fmt::format(
      "{}: restored; {} newer audit log lines were replayed; {} jobs are pending or running\n",
      backup, restored.lines, live);
  if (!restored.kept.empty()) text += fmt::format("the former records: {}\n", restored.kept);
  if (restored.log_rewritten) {
    text +=
        "the audit log was missing: it was rewritten up to the backup; later entries are\n"
        "not known but by the folders of jobs\n";
  }
  for (const auto& [what, count] : restored.not_repeated.items()) {
    text += fmt::format("not made again: {} ({})\n", what, count.get<int64_t>());
  }
  print_text(text);
  return exit_ok;
}

}  // namespace

void add_controller_restore(CLI::App& group, Action& action) {
  const auto restore = std::make_shared<RestoreArguments>();
  CLI::App* command = group.add_subcommand("restore", "Restore the database from a backup");
  command->add_option("FILE", restore->file, "Backup to restore")->required();
  add_control_options(*command, restore->control);
  command->footer(
      "Stop the controller and `tutti serve` first. FILE is checked and not changed; the previous\n"
      "database is kept next to the new one. Audit log entries newer than the backup are\n"
      "replayed: jobs that were submitted, ran or were cancelled, what they cost, roles\n"
      "that were granted or revoked. Tokens issued since the backup are lost: issue new ones.\n\n"
      "Example:\n  tutti controller restore control-backup.db");
  command->callback([restore, &action] { action = [restore] { return run_restore(*restore); }; });
}

}  // namespace tutti::cli
