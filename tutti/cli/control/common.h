// What the commands of the control plane share: folder, caller, and the audit log afterwards.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/json.h"
#include "tutti/cli/program/commands.h"
#include "tutti/control/jobs/job.h"
#include "tutti/control/people/permission.h"
#include "tutti/control/store/folder.h"

namespace tutti::cli {

struct ControlOptions {
  std::string folder;  // empty: $TUTTI_CONTROL, else control/ in the user's data folder
  bool json = false;
};
void add_control_options(CLI::App& command, ControlOptions& options);
// Which folder these mean, and whether a control plane was made in it.
control::ControlFolder folder_of(const ControlOptions& options);
bool exists(const control::ControlFolder& folder);

// An open control plane. The caller is the owner of the token in $TUTTI_TOKEN, else the account
// that runs this process. In a new folder the caller becomes its admin.
class ControlSession {
 public:
  // `serves_jobs`: it monitors jobs and does nothing else for its caller, so that an account which
  // demands tokens needs none.
  explicit ControlSession(const ControlOptions& options, bool serves_jobs = false);
  ~ControlSession();  // brings the audit log file up to date
  ControlSession(const ControlSession&) = delete;
  ControlSession& operator=(const ControlSession&) = delete;

  control::Caller caller();  // now
  // That speaks for the caller.
  bool has_token() const { return !caller_->token_id.empty(); }
  control::Database& database() { return *database_; }
  const control::ControlFolder& folder() const { return folder_; }
  control::Site site();

 private:
  control::ControlFolder folder_;
  std::unique_ptr<control::Database> database_;
  std::optional<control::Caller> caller_;
};

// The caller, by the users of that database, now: the owner of the token in $TUTTI_TOKEN, for the
// client at $TUTTI_CLIENT, else the account. Takes both out of the environment.
control::Caller caller_in(control::Database& database);

// Starts a controller that ends when there is nothing left to do, unless one runs. Returns whether
// it started one.
bool ensure_controller(const control::ControlFolder& folder);
bool controller_runs(const control::ControlFolder& folder);

std::string current_folder();
// Absolute, since the controller and jobs work in other folders.
std::string absolute(const std::string& path);
std::string output_path_of(const control::ControlFolder& folder, const control::Job& job);
// Of "90s", "8h"; throws usage naming `key` for more than a hundred years.
int64_t parse_milliseconds(const std::string& text, const char* key);
// The wall clock of a date ("2026-02-01T12:00:00Z") or of a time from now ("8h"); 0 for "".
int64_t parse_deadline(const std::string& text);

// Where jobs go to Slurm: brings the records of its nodes up to date. False: it does not answer.
bool follow_slurm(ControlSession& session);

std::string site_text(const control::Site& site);  // one line per property of the site
std::string time_text(int64_t wall_ms);            // "-" for 0
std::string duration_text(int64_t milliseconds);   // "-" for 0
std::string money_text(int64_t micro_usd);         // "3.60 USD"
std::string energy_text(int64_t micro_kwh);        // "1.25 kWh"
Json job_json(const control::Job& job);
Json forecast_json(const control::Forecast& forecast);

// What the planner expects `recipe` to take on the system of that name in the catalog (empty: this
// machine, measured when the folder's catalog does not have it yet), priced by the site's rates.
control::Forecast forecast_job(ControlSession& session, const std::string& recipe_yaml,
                               const control::JobRequest& request, const std::string& system,
                               const std::string& catalog);

// The verbs, one file each (control_*.cpp).
void add_controller_restore(CLI::App& group, Action& action);
void add_admin_list(CLI::App& group, Action& action);
void add_admin_people(CLI::App& group, Action& action);

}  // namespace tutti::cli
