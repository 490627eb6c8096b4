#include "tutti/cli/checkpoint/subject.h"

#include "tutti/base/error.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/cli/control/common.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/people/administration.h"
#include "tutti/control/people/visible.h"
#include "tutti/object/file_system.h"
#include "tutti/object/uri.h"
#include "tutti/train/session/home_owner.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

// The run folder of what is in an object store, as its owner recorded it.
std::string recorded_folder(FileSystem& files, const std::string& home) {
  const std::string recorded = train::read_owner(files, home).run_folder;
  return recorded.empty() ? home : recorded;
}

}  // namespace

CheckpointSubject find_subject(const std::string& given) {
  FileSystem& files = object::file_system();
  std::string path = object::is_uri(given) ? given : absolute(given);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (!checkpoint::parse_step_folder_name(base_name(path))) {
    std::string newest;
    for (const auto& info :
         checkpoint::list_checkpoints(files, train::find_checkpoints(files, path))) {
      if (info.valid) newest = info.path;
    }
    if (newest.empty()) {
      fail(ErrorKind::not_found, "'{}' has no whole checkpoint; give a run, or a checkpoint",
           given);
    }
    path = newest;
  }
  const std::string text = read_file(files, join_path(path, "manifest.json"));
  const std::string home = parent_path(parent_path(path));
  return {path, home, recorded_folder(files, home), control::sha256_hex(text),
          checkpoint::parse_manifest(text, path)};
}

std::string project_of(const control::Caller& caller, const CheckpointSubject& subject) {
  const auto job = control::visible_job_of_run(caller, subject.run);
  if (job) return job->request.project;
  const std::string named = train::load_recipe(object::file_system(), subject.home).run.project;
  return named.empty() ? std::string(control::kDefaultProject) : named;
}

}  // namespace tutti::cli
