#include "tutti/engine/cuda/gemm_tuning.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/json.h"

namespace tutti::engine {
namespace {

constexpr int kFormat = 1;

std::string file_name(const std::string& gpu, uint64_t version) {
  std::string name = "gemm-" + gpu + "-" + std::to_string(version) + ".json";
  std::replace_if(
      name.begin(), name.end(),
      [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '.'; }, '-');
  return name;
}

// A lock file that serialises processes which read and rewrite a file. File systems without locks
// do not serialise them.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() {
    if (file_ >= 0) ::close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

}  // namespace

GemmTuning::GemmTuning(const std::string& folder, const std::string& gpu, uint64_t library_version)
    : gpu_(gpu), library_version_(library_version) {
  if (folder.empty()) return;
  path_ = join_path(folder, file_name(gpu, library_version));
  read();
}

void GemmTuning::read() {
  FileSystem& files = posix_file_system();
  if (!files.exists(path_)) return;
  const Json json = parse_json(read_file(files, path_), path_);
  if (json_get<int>(json, "format", path_) != kFormat ||
      json_get<std::string>(json, "gpu", path_) != gpu_ ||
      json_get<uint64_t>(json, "library_version", path_) != library_version_) {
    fail(ErrorKind::corrupt,
         "{}: expected format {}, GPU '{}' and library version {}; remove the file", path_, kFormat,
         gpu_, library_version_);
  }
  const Json choices = json_get<Json>(json, "choices", path_);
  for (const auto& [key, entry] : choices.items()) {
    choices_[key] = {json_get<std::array<uint64_t, 8>>(entry, "algorithm", path_),
                     json_get<double>(entry, "seconds", path_)};
  }
}

std::optional<TunedGemm> GemmTuning::find(const std::string& key) const {
  const auto found = choices_.find(key);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

TunedGemm GemmTuning::add(const std::string& key, const TunedGemm& choice) {
  if (path_.empty()) return choices_[key] = choice;
  try {
    return share(key, choice);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::corrupt) throw;
    warning_ = fmt::format(
        "algorithm choices are not shared with other processes, whose results may differ in the "
        "last bits: {}; set TUTTI_TUNING to a writable folder",
        error.what());
    path_.clear();
    return choices_[key] = choice;
  }
}

TunedGemm GemmTuning::share(const std::string& key, const TunedGemm& choice) {
  FileSystem& files = posix_file_system();
  files.create_directories(parent_path(path_));
  const FileLock lock(path_ + ".lock");
  read();
  const auto [found, is_new] = choices_.emplace(key, choice);
  if (!is_new) return found->second;
  Json entries = Json::object();
  for (const auto& [name, tuned] : choices_) {
    entries[name] = {{"algorithm", tuned.algorithm}, {"seconds", tuned.seconds}};
  }
  const Json json = {{"format", kFormat},
                     {"gpu", gpu_},
                     {"library_version", library_version_},
                     {"choices", entries}};
  write_file_atomic(files, path_, dump_json(json));
  return choice;
}

}  // namespace tutti::engine
