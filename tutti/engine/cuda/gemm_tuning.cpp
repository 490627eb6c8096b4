#include "tutti/engine/cuda/gemm_tuning.h"

#include <algorithm>
#include <cctype>

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
    fail(ErrorKind::corrupt, "{}: not format {} for GPU '{}' and library {}; remove the file",
         path_, kFormat, gpu_, library_version_);
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

void GemmTuning::add(const std::string& key, const TunedGemm& choice) {
  if (!path_.empty()) read();
  choices_[key] = choice;
  if (path_.empty()) return;
  Json entries = Json::object();
  for (const auto& [name, tuned] : choices_) {
    entries[name] = {{"algorithm", tuned.algorithm}, {"seconds", tuned.seconds}};
  }
  const Json json = {{"format", kFormat},
                     {"gpu", gpu_},
                     {"library_version", library_version_},
                     {"choices", entries}};
  FileSystem& files = posix_file_system();
  files.create_directories(parent_path(path_));
  write_file_atomic(files, path_, dump_json(json));
}

}  // namespace tutti::engine
