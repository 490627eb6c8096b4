#include "tutti/catalog/load_kind.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::catalog {
namespace {

constexpr const char* kSuffix = ".yaml";

}  // namespace

std::map<std::string, Entry> load_kind(FileSystem& files, const std::vector<std::string>& folders,
                                       const std::string& subfolder, const std::string& kind) {
  std::map<std::string, Entry> entries;
  for (const std::string& folder : folders) {
    const std::string path = join_path(folder, subfolder);
    if (!files.is_directory(path)) continue;
    std::map<std::string, std::string> seen;
    for (const DirectoryEntry& file : files.list(path)) {
      if (file.is_directory || !ends_with(file.name, kSuffix)) continue;
      Entry entry = load_entry(files, join_path(path, file.name));
      if (entry.kind != kind) {
        fail(ErrorKind::usage, "{}: kind: '{}', but files in {}/ are of kind {}", entry.origin,
             entry.kind, subfolder, kind);
      }
      if (const auto [at, added] = seen.emplace(entry.name, entry.origin); !added) {
        fail(ErrorKind::usage, "{}: name: '{}' is taken by {}", entry.origin, entry.name,
             at->second);
      }
      entries[entry.name] = std::move(entry);
    }
  }
  return entries;
}

}  // namespace tutti::catalog
