// `tutti deployment keys`: who may ask a deployment, within which limits. Its keys and what they
// have used are files below the control plane's folder (control/store/folder.h); they stay with the
// name of the deployment when it is stopped and deployed again.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tutti/cli/program/commands.h"
#include "tutti/control/jobs/job.h"
#include "tutti/control/store/folder.h"

namespace tutti::cli {

std::string deployment_folder(const control::ControlFolder& plane, const std::string& project,
                              const std::string& name);
std::string key_file_of(const std::string& deployment_folder);
std::string use_file_of(const std::string& deployment_folder);
// Throws usage where a key of an earlier deployment of that name could not be kept by this one.
void check_kept_keys(const std::string& deployment_folder, const control::JobRequest& request);
// Makes the folder and a file without keys, where there is none.
void make_key_file(const std::string& deployment_folder);

void add_deployment_keys(CLI::App& group, Action& action);

}  // namespace tutti::cli
