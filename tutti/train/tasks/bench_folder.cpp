#include "tutti/train/tasks/bench_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <optional>

#include "tutti/base/direct_file.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/units.h"

namespace tutti::train {
namespace {

constexpr double kLeastFreeShare = 0.05;
constexpr int64_t kMebibyte = 1 << 20;

}  // namespace

BenchFolder::BenchFolder(FileSystem& files, const std::string& parent) : files_(files) {
  const std::string name =
      fmt::format("tutti-bench-storage-{}-{}", describe_machine().host, ::getpid());
  std::string path = join_path(parent, name);
  for (int n = 1; files_.exists(path); ++n) {
    path = join_path(parent, fmt::format("{}-{}", name, n));
  }
  files_.create_directories(path);
  path_ = path;
}

BenchFolder::~BenchFolder() {
  try {
    remove();
  } catch (const std::exception&) {
    // The storage is as broken as the error on its way says.
  }
}

void BenchFolder::remove() {
  if (path_.empty()) return;
  files_.remove_tree(path_);
  path_.clear();
}

void check_bench_space(FileSystem& files, const std::string& path, int64_t bytes, bool on_machine) {
  if (!files.is_directory(path)) {
    fail(ErrorKind::not_found, "{}: no folder; name one on the disk to be measured", path);
  }
  const std::optional<DiskSpace> space = on_machine ? disk_space(path) : std::nullopt;
  if (!space) return;
  const double most = space->free_bytes - kLeastFreeShare * space->total_bytes;
  if (static_cast<double>(bytes) <= most) return;
  fail(ErrorKind::no_space,
       "{}: {} of {} are free, and 5% are left free: {} cannot be written for a measurement; {}",
       path, format_bytes(space->free_bytes), format_bytes(space->total_bytes),
       format_bytes(static_cast<double>(bytes)),
       most >= static_cast<double>(kMebibyte)
           ? fmt::format("at most {}MiB (--size)", static_cast<int64_t>(most) / kMebibyte)
           : "free some space or choose another folder");
}

}  // namespace tutti::train
