#include "tutti/data/prepare/sources.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {
namespace {

constexpr size_t kExamples = 5;

// The name without a compression suffix.
std::string_view bare_name(std::string_view name) {
  for (const std::string_view suffix : {".gz", ".zst"}) {
    if (ends_with(name, suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

SourceFile describe(const std::string& path, const std::string& name, int64_t size) {
  SourceFile file{path, name, size};
  const std::string_view bare = bare_name(name);
  if (ends_with(name, ".gz")) file.compression = Compression::gzip;
  if (ends_with(name, ".zst")) file.compression = Compression::zstd;
  for (const char* suffix : {".jsonl", ".ndjson", ".json"}) {
    if (ends_with(bare, suffix)) file.content = Content::json_lines;
  }
  return file;
}

class Search {
 public:
  Search(FileSystem& files, const SourceOptions& options, std::vector<Skipped>& skipped,
         std::vector<SourceFile>& found)
      : files_(files), options_(options), skipped_(skipped), found_(found) {}

  void source(const std::string& path, size_t index) {
    const size_t first = found_.size();
    if (files_.is_directory(path)) {
      seen_.clear();
      enter(path, "", true);
    } else {
      const int64_t size = files_.size_bytes(path);
      if (size == 0 && files_.is_stream(path)) {
        fail(ErrorKind::usage,
             "cannot read '{}': it is a pipe or a device, not a file; write its contents to a file",
             path);
      }
      if (size == 0) fail(ErrorKind::usage, "'{}' is empty: no text to prepare", path);
      found_.push_back(describe(path, base_name(path), size));
      found_.back().named_directly = true;
    }
    for (size_t i = first; i < found_.size(); ++i) found_[i].source = index;
  }

 private:
  void enter(const std::string& folder, const std::string& below, bool named_directly) {
    // Symbolic links can lead back to a folder above; its real name shows it. Names that the
    // machine does not know (file systems in memory) stay as they are.
    std::error_code ignored;
    const auto real = std::filesystem::weakly_canonical(folder, ignored);
    if (!seen_.insert(real.string()).second) {
      count_skipped(skipped_, "folder seen before", folder);
      return;
    }
    std::vector<DirectoryEntry> entries;
    try {
      entries = files_.list(folder);
    } catch (const Error& error) {
      if (named_directly || error.kind() != ErrorKind::permission) throw;
      count_skipped(skipped_, "unreadable", folder);
      return;
    }
    for (const DirectoryEntry& entry : entries) visit(folder, below, entry);
  }

  void visit(const std::string& folder, const std::string& below, const DirectoryEntry& entry) {
    const std::string path = join_path(folder, entry.name);
    const std::string name = below.empty() ? entry.name : join_path(below, entry.name);
    if (entry.name.front() == '.') {
      count_skipped(skipped_, "hidden", path);
    } else if (entry.is_directory) {
      enter(path, name, false);
    } else if (!wanted(entry.name) || own_output(path)) {
      return;
    } else if (entry.size_bytes == 0) {
      count_skipped(skipped_, "empty", path);
    } else {
      found_.push_back(describe(path, name, entry.size_bytes));
    }
  }

  bool wanted(std::string_view name) const {
    if (options_.include.empty()) return true;
    const std::string_view bare = bare_name(name);
    return std::any_of(options_.include.begin(), options_.include.end(),
                       [&](const std::string& suffix) {
                         if (suffix.empty()) return bare.find('.') == std::string_view::npos;
                         return ends_with(bare, suffix) || ends_with(name, suffix);
                       });
  }

  bool own_output(const std::string& path) const {
    if (options_.output_prefix.empty()) return false;
    const auto normal = [](const std::string& name) {
      return std::filesystem::absolute(name).lexically_normal().string();
    };
    const std::string whole = normal(path);
    for (const char* part : {"", "-validation", ".whole"}) {
      const CorpusPaths paths = corpus_paths(normal(options_.output_prefix + part));
      for (const std::string& own :
           {paths.bin, paths.idx, paths.tokenizer, paths.meta, paths.mask, paths.checksums}) {
        if (whole == own || whole == own + ".tmp" || whole == own + kLockSuffix) return true;
      }
      const std::string pending = normal(options_.output_prefix) + kPendingSuffix;
      if (whole == pending || whole == pending + ".tmp") return true;
      if (starts_with(whole, tokenizer_folder(paths.tokenizer) + "/")) return true;
    }
    return false;
  }

  FileSystem& files_;
  const SourceOptions& options_;
  std::vector<Skipped>& skipped_;
  std::vector<SourceFile>& found_;
  std::set<std::string> seen_;
};

}  // namespace

void count_skipped(std::vector<Skipped>& skipped, const std::string& reason,
                   const std::string& path) {
  auto found = std::find_if(skipped.begin(), skipped.end(),
                            [&](const Skipped& entry) { return entry.reason == reason; });
  if (found == skipped.end()) found = skipped.insert(found, {reason, 0, {}});
  ++found->count;
  if (found->examples.size() < kExamples) found->examples.push_back(path);
}

std::vector<SourceFile> list_sources(FileSystem& files, const std::vector<std::string>& sources,
                                     const SourceOptions& options, std::vector<Skipped>& skipped) {
  if (sources.empty()) fail(ErrorKind::usage, "no source is named; name files or folders of text");
  std::vector<SourceFile> found;
  Search search(files, options, skipped, found);
  for (size_t i = 0; i < sources.size(); ++i) search.source(sources[i], i);
  if (found.empty()) {
    fail(ErrorKind::usage, "no text file is left in {}{}", join(sources, ", "),
         options.include.empty() ? ""
                                 : " with the suffixes asked for: " + join(options.include, ", "));
  }
  return found;
}

}  // namespace tutti::data
