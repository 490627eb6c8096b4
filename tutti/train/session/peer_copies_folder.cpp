#include "tutti/train/session/peer_copies_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/piece.h"
#include "tutti/comm/rendezvous/launch_environment.h"

namespace tutti::train {
namespace {

constexpr const char* kNumberName = "peer-copies";  // in the run folder
constexpr const char* kFolderPrefix = "tutti-";

// Whether `folder`, of this host, is of a run that has forgotten it. A run whose own folder cannot
// be seen from here may be alive.
bool is_forgotten(FileSystem& files, const std::string& root, const std::string& folder) {
  const std::string owner = join_path(folder, kCopiesOwner);
  if (!files.exists(owner)) return false;
  const std::string run = read_file(files, owner);
  if (!files.is_directory(run)) return false;
  const std::string number = join_path(run, kNumberName);
  return !files.exists(number) ||
         peer_copies_folder(root, hash_text(read_file(files, number))) != folder;
}

}  // namespace

std::string peer_copies_host() {
  return comm::read_process_variable("SLURMD_NODENAME").value_or(describe_machine().host);
}

uint64_t peer_copies_number(FileSystem& files, const std::string& run_folder,
                            const RankConsensus& consensus) {
  uint64_t number = 0;
  if (consensus.leads()) {
    const std::string path = join_path(run_folder, kNumberName);
    if (!files.exists(path)) {
      const uint64_t fresh = hash_text(fmt::format("{} {} {}", files.resolve(run_folder),
                                                   describe_machine().host, wall_seconds()));
      write_file_atomic(files, path, hash_hex(fresh) + "\n");
    }
    number = hash_text(read_file(files, path));
  }
  return consensus.of_leader(number);
}

std::string peer_copies_folder(const std::string& root, uint64_t number) {
  return join_path(
      root, fmt::format("{}{}-{}", kFolderPrefix, hash_hex(number), printable(peer_copies_host())));
}

KeptCopy newest_peer_copy(FileSystem& files, const std::string& root,
                          const std::string& run_folder) {
  const std::string path = join_path(run_folder, kNumberName);
  if (!files.exists(path)) return {};
  const std::string folder = peer_copies_folder(root, hash_text(read_file(files, path)));
  const auto pieces = checkpoint::list_pieces(files, folder);
  if (pieces.empty()) return {};
  // Where there are two sets, the newer was being made.
  const checkpoint::Piece& oldest = pieces.front();
  return {oldest.step, checkpoint::pieces_path(folder, oldest)};
}

bool may_have_peer_copies(FileSystem& files, const std::string& run_folder) {
  return files.exists(join_path(run_folder, kNumberName));
}

void forget_peer_copies(FileSystem& files, const std::string& run_folder) {
  const std::string path = join_path(run_folder, kNumberName);
  if (files.exists(path)) files.remove_file(path);
}

int64_t room_for_peer_copies(const std::string& root) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(root, error);
  int64_t room = error ? INT64_MAX : static_cast<int64_t>(space.available);
  std::ifstream memory("/proc/meminfo");
  for (std::string name; memory >> name;) {
    int64_t kibibytes = 0;
    if (name == "MemAvailable:" && memory >> kibibytes) room = std::min(room, kibibytes * 1024);
    memory.ignore(INT32_MAX, '\n');
  }
  return room;
}

int64_t sweep_peer_copies(FileSystem& files, const std::string& root) {
  int64_t removed = 0;
  const std::string suffix = "-" + printable(peer_copies_host());
  std::vector<DirectoryEntry> entries;
  try {
    if (files.is_directory(root)) entries = files.list(root);
  } catch (const Error&) {  // not for us to see
  }
  for (const DirectoryEntry& entry : entries) {
    const bool is_ours = entry.is_directory && starts_with(entry.name, kFolderPrefix) &&
                         entry.name.ends_with(suffix);
    if (!is_ours) continue;
    const std::string folder = join_path(root, entry.name);
    try {
      if (!is_forgotten(files, root, folder)) continue;
      files.remove_tree(folder);
      ++removed;
    } catch (const Error&) {  // another user's, or gone
    }
  }
  return removed;
}

}  // namespace tutti::train
