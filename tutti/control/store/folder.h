// Where a control plane keeps its things:
//
//   FOLDER/control.db        records        FOLDER/audit.jsonl    audit log
//   FOLDER/jobs/ID-STAMP/    a job's folder (control/launches/launch_folder.h)
//   FOLDER/recipes/HASH.yaml recipes of jobs, resolved
//   FOLDER/incidents/NUMBER.json  what went wrong, what was done, what it cost
//   FOLDER/deployments/PROJECT+NAME/keys, usage.jsonl  API keys of a deployment, and their use
//   FOLDER/catalog/          what the planner knows about this machine
//   FOLDER/controller.lock   held by the controller    FOLDER/controller.log   what it says
#pragma once

#include <memory>
#include <string>

#include "tutti/base/file.h"
#include "tutti/control/store/database.h"

namespace tutti::control {

struct ControlFolder {
  std::string path;
  std::string database() const { return join_path(path, "control.db"); }
  std::string audit() const { return join_path(path, "audit.jsonl"); }
  std::string jobs() const { return join_path(path, "jobs"); }
  std::string recipes() const { return join_path(path, "recipes"); }
  std::string catalog() const { return join_path(path, "catalog"); }
  std::string lock() const { return join_path(path, "controller.lock"); }
  std::string deployments() const { return join_path(path, "deployments"); }
  std::string incidents() const { return join_path(path, "incidents"); }
  std::string health() const { return join_path(path, "health"); }  // reports of nodes
  std::string log() const { return join_path(path, "controller.log"); }
};

// Creates it where it is not; readable by its owner alone from then on.
void make_private(FileSystem& files, const ControlFolder& folder);

// Opens the database, creating folder and tables where they are not. Throws corrupt where the
// records are gone and the audit log shows that there were some: they are to be restored
// (control/audit/restore.h), not recreated.
std::unique_ptr<Database> open_control(FileSystem& files, const ControlFolder& folder);

}  // namespace tutti::control
