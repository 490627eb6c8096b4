#include "tutti/launch/prepared_data.h"

#include "tutti/base/error.h"
#include "tutti/base/message.h"
#include "tutti/base/signals.h"
#include "tutti/data/corpus/checksums.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/corpus/prepared.h"
#include "tutti/data/corpus/require_corpus.h"
#include "tutti/launch/home.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::launch {

void locate_source(FileSystem& files, spec::Recipe& recipe, const std::string& recipe_path) {
  std::string& source = recipe.data.prepare.source;
  if (source.empty() || source.front() == '/') return;
  for (const std::string& path : {join_path(parent_path(recipe_path), source), source}) {
    if (!files.exists(path)) continue;
    source = files.resolve(path);
    return;
  }
}

void name_corpora(FileSystem& files, spec::Recipe& recipe, const std::string& run_folder) {
  spec::DataConfig& data = recipe.data;
  if (!data.prepare.enabled() || !data.train.empty()) return;
  if (data.prepare.folder.empty()) {
    const std::string cache = user_cache_folder();
    data.prepare.folder = join_path(cache.empty() ? run_folder : cache, "corpora");
  }
  data::name_prepared_corpora(files, data);
}

void check_corpora(FileSystem& files, const spec::Recipe& recipe) {
  const spec::DataConfig& data = recipe.data;
  const spec::PrepareConfig& prepare = data.prepare;
  const bool is_made_first =
      prepare.enabled() && data.train.corpora.size() == 1 &&
      !data::corpus_exists(files, data.train.corpora.front().prefix) &&
      data.train.corpora.front().prefix == data::prepared_prefix(files, prepare);
  if (is_made_first) {
    if (files.exists(prepare.source)) return;
    fail(ErrorKind::not_found, "data.prepare.source: no file '{}'; give the text file",
         prepare.source);
  }
  const data::DatasetOptions options = {recipe.batch.sequence,
                                        data.packing,
                                        recipe.model.vocabulary,
                                        recipe.train.seed,
                                        {data.cache, data.cache_bytes}};
  data::Dataset(files, data.train, options, "data.train").check_trainable();
  if (!data.validation.empty()) {
    const data::Dataset validation(files, data.validation, options, "data.validation");
  }
}

void make_corpora(FileSystem& files, const spec::Recipe& recipe) {
  telemetry::ProgressBar progress("prepare", "bytes");
  data::make_prepared_corpora(files, recipe.data,
                              [&](int64_t done, int64_t total) { progress.update(done, total); });
  progress.finish();
}

void require_corpora(FileSystem& files, const spec::Recipe& recipe) {
  for (const spec::CorpusBlend* blend : {&recipe.data.train, &recipe.data.validation}) {
    for (const spec::CorpusShare& share : blend->corpora) {
      data::require_corpus(files, share.prefix);
      data::require_tokens(files, share.prefix);
    }
  }
}

void record_checksums(FileSystem& files, const spec::CorpusBlend& blend) {
  for (const spec::CorpusShare& share : blend.corpora) {
    const std::string& prefix = share.prefix;
    if (!data::corpus_exists(files, prefix) || files.exists(data::corpus_paths(prefix).checksums)) {
      continue;
    }
    telemetry::ProgressBar progress("record checksums of " + base_name(prefix), "bytes");
    try {
      data::record_checksums(files, prefix, [&](int64_t done, int64_t total) {
        throw_if_interrupted();
        progress.update(done, total);
      });
      progress.finish();
    } catch (const Error& error) {
      const bool cannot_write = error.kind() == ErrorKind::permission ||
                                error.kind() == ErrorKind::no_space ||
                                error.kind() == ErrorKind::io;
      if (!cannot_write) throw;
      print_message(
          fmt::format("warning: {}: without its checksums, damage of corpus '{}' goes unnoticed; "
                      "run once as a user with write access\n",
                      error.what(), prefix));
    }
  }
}

}  // namespace tutti::launch
