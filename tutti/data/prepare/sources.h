// Which files a corpus is made from.
//
// A source is a file, or a folder that is searched recursively in byte order of the names. In
// folders, names that start with '.' are passed over, and a folder reached twice (symbolic links)
// is read once. What a file holds follows from its name: .jsonl, .ndjson and .json are JSON
// lines, all else is text; a last .gz or .zst says that it is compressed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::data {

enum class Content { text, json_lines };
enum class Compression { none, gzip, zstd };

struct SourceFile {
  std::string path;
  std::string name;  // path below its source folder, or the file's own name: independent of where
  int64_t size_bytes = 0;  // as stored
  Content content = Content::text;
  Compression compression = Compression::none;
  bool named_directly = false;  // trouble with it is an error, not a counted skip
  size_t source = 0;            // which of the sources it belongs to
  std::string json_key = {};    // of the text in its JSON lines, where not that of all sources
};

// Files that were passed over for one reason.
struct Skipped {
  std::string reason;  // "binary", "empty", "unreadable", "hidden", "folder seen before"
  int64_t count = 0;
  std::vector<std::string> examples;  // the first few paths
};
void count_skipped(std::vector<Skipped>& skipped, const std::string& reason,
                   const std::string& path);

// Of the file beside PREFIX.bin whose lock is held while the corpus is made
// (cli/program/output_lock.h).
inline constexpr const char* kLockSuffix = ".lock";

struct SourceOptions {
  // Suffixes of the names wanted from folders, such as ".h" or ".txt" (a .gz or .zst after it is
  // accepted); "" stands for names without a dot. Empty: every file.
  std::vector<std::string> include;
  // The corpus being written, which is passed over when it lies among its own sources.
  std::string output_prefix;
};

// Throws not_found, permission or usage (empty file) for what is named directly, and usage when
// no file is left.
std::vector<SourceFile> list_sources(FileSystem& files, const std::vector<std::string>& sources,
                                     const SourceOptions& options, std::vector<Skipped>& skipped);

}  // namespace tutti::data
