#include "tutti/data/corpus/prepared.h"

#include <fmt/format.h>

#include <random>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/prepare/prepare.h"

namespace tutti::data {
namespace {

// Changes when the same text comes to other tokens than before.
constexpr const char* kPreparedVersion = "1";

std::string file_xxh3(FileSystem& files, const std::string& path) {
  const auto mapped = files.map(path);
  return hash_hex(hash_text(mapped->bytes()));
}

void check_source(FileSystem& files, const spec::PrepareConfig& config) {
  if (files.is_directory(config.source)) {
    fail(ErrorKind::usage,
         "data.prepare.source: '{}' is a folder; give one file, or make the corpora of a folder "
         "with 'tutti data prepare' and name them in data.train and data.validation",
         config.source);
  }
  if (!files.exists(config.source)) {
    fail(ErrorKind::not_found,
         "data.prepare.source: no file '{}'; give the text file, or your own corpora "
         "in data.train and data.validation",
         config.source);
  }
}

// What a tokenizer's name stands for: a file's contents, or the name itself.
std::string tokenizer_key(FileSystem& files, const std::string& name) {
  const bool is_file = files.exists(name) && !files.is_directory(name);
  return is_file ? file_xxh3(files, name) : name;
}

std::string name_of_source(const std::string& source) {
  const std::string name = base_name(source);
  return name.substr(0, name.find('.'));
}

void check_hash(FileSystem& files, const spec::PrepareConfig& config) {
  if (config.xxh3.empty()) return;
  const std::string found = file_xxh3(files, config.source);
  if (found == config.xxh3) return;
  fail(ErrorKind::usage,
       "data.prepare.xxh3: '{}' has the hash {}, not {}; put back the file that the recipe was "
       "written for, or set data.prepare.xxh3={} to train on this one",
       config.source, found, config.xxh3, found);
}

// Gone with this object, whatever became of it.
class StagingFolder {
 public:
  StagingFolder(FileSystem& files, const std::string& folder)
      : files_(files), path_(fmt::format("{}.{:08x}.tmp", folder, std::random_device{}())) {}
  ~StagingFolder() {
    try {
      files_.remove_tree(path_);
    } catch (const Error&) {
      // It stays, as after a crash, and no process takes it for a corpus.
    }
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  FileSystem& files_;
  const std::string path_;
};

}  // namespace

std::string prepared_prefix(FileSystem& files, const spec::PrepareConfig& config) {
  if (config.xxh3.empty()) check_source(files, config);
  const std::string content = config.xxh3.empty() ? file_xxh3(files, config.source) : config.xxh3;
  const std::string key =
      hash_hex(hash_text(fmt::format("{}\n{}\n{}\n{}", kPreparedVersion, content,
                                     tokenizer_key(files, config.tokenizer), config.holdout)));
  const std::string name = fmt::format("{}-{}", name_of_source(config.source), key);
  return join_path(join_path(config.folder, name), "corpus");
}

void name_prepared_corpora(FileSystem& files, spec::DataConfig& data) {
  if (!data.prepare.enabled() || !data.train.empty()) return;
  const std::string prefix = prepared_prefix(files, data.prepare);
  data.train = prefix;
  if (data.validation.empty() && data.prepare.holdout > 0) {
    data.validation = validation_prefix(prefix);
  }
}

void make_prepared_corpora(FileSystem& files, const spec::DataConfig& data,
                           const std::function<void(int64_t, int64_t)>& progress) {
  const spec::PrepareConfig& config = data.prepare;
  if (!config.enabled() || data.train.corpora.size() != 1) return;
  const std::string& prefix = data.train.corpora.front().prefix;
  if (corpus_exists(files, prefix)) return;
  if (config.folder.empty() || prefix != prepared_prefix(files, config)) return;

  check_source(files, config);
  check_hash(files, config);
  const std::string folder = parent_path(prefix);
  try {
    files.create_directories(config.folder);
  } catch (const Error& error) {
    fail(error.kind(), "data.prepare.folder: {}; set it to a folder that you may write",
         error.what());
  }
  const StagingFolder staging(files, folder);
  PrepareOptions options;
  options.sources = {config.source};
  options.prefix = join_path(staging.path(), base_name(prefix));
  options.tokenizer = config.tokenizer;
  options.holdout_share = config.holdout;
  options.progress = progress;
  prepare(files, options);
  try {
    files.rename(staging.path(), folder);
  } catch (const Error& error) {
    if (corpus_exists(files, prefix)) return;  // another process was first
    fail(error.kind(), "data.prepare.folder: {}; remove '{}' if it is there without a corpus in it",
         error.what(), folder);
  }
  files.sync_directory(config.folder);
}

}  // namespace tutti::data
