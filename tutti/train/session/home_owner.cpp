#include "tutti/train/session/home_owner.h"

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/object_store.h"
#include "tutti/base/text.h"
#include "tutti/train/session/run_history.h"

namespace tutti::train {
namespace {

std::string owner_path(const std::string& home) { return join_path(home, "owner.json"); }

// The same for all names of a folder, which need not be there.
std::string full_path(FileSystem& files, const std::string& run_folder) {
  std::string path = run_folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return files.resolve(path.front() == '/' ? path : join_path(files.resolve("."), path));
}

}  // namespace

HomeOwner read_owner(FileSystem& files, const std::string& home) {
  HomeOwner owner;
  ObjectStore* store = object_store(files, home);
  if (store == nullptr) return owner;
  const std::string path = owner_path(home);
  owner.version = store->version(path);
  if (owner.version.empty()) return owner;
  const Json json = parse_json(read_file(files, path), path);
  owner.run_id = json_get<std::string>(json, "run_id", path);
  owner.run_folder = json_get<std::string>(json, "run_folder", path);
  if (owner.run_id.size() != 16 ||
      owner.run_id.find_first_not_of("0123456789abcdef") != std::string::npos) {
    fail(ErrorKind::corrupt, "'{}': the id '{}' is not one of a run; remove the file", path,
         printable(owner.run_id));
  }
  return owner;
}

void check_owner(FileSystem& files, const HomeOwner& owner, const std::string& home,
                 const std::string& run_folder) {
  if (owner.run_id.empty()) return;
  const RunHistory history = read_history(files, run_folder);
  if (history.ids.count(owner.run_id) > 0) return;
  if (history.ids.empty() && owner.run_folder == full_path(files, run_folder)) return;
  fail(ErrorKind::usage,
       "'{}' belongs to the run of '{}' ({}), and the one in '{}' is another; choose another name "
       "(--run or run.name) or checkpoint.store; if it is the same run, which has "
       "moved, say so with --force-resume",
       home, owner.run_folder, owner.run_id, run_folder);
}

void claim_home(FileSystem& files, const HomeOwner& owner, const std::string& home,
                const std::string& run_folder, const std::string& run_id) {
  ObjectStore* store = object_store(files, home);
  if (store == nullptr) return;
  const std::string path = owner_path(home);
  const std::string folder = full_path(files, run_folder);
  const std::string text = dump_json({{"run_id", run_id}, {"run_folder", folder}}) + "\n";
  bool may_be_there = false;
  if (owner.run_id != run_id || owner.run_folder != folder) {
    store->publish(path, text, owner.version, may_be_there);
  }
  // It is there, so this must fail. The bytes differ from those above: after an answer that was
  // lost, what is there says whether it has.
  try {
    store->publish(path, text + "\n", "", may_be_there);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::peer) return;
    throw;
  }
  fail(ErrorKind::unsupported,
       "'{}': the store overwrites an object although the request has If-None-Match: of two "
       "processes that save the same step both would believe that theirs is the checkpoint; take a "
       "store that knows conditional writes for checkpoint.store",
       path);
}

}  // namespace tutti::train
