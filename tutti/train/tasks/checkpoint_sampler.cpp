#include "tutti/train/tasks/checkpoint_sampler.h"

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/data/corpus/format.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/tasks/generate.h"

namespace tutti::train {
namespace {

// The run's own, else that of the corpus it learns from.
std::unique_ptr<data::Tokenizer> sampler_tokenizer(FileSystem& files, const spec::Recipe& recipe,
                                                   const std::string& run_folder) {
  std::vector<std::string> paths = {tokenizer_path(run_folder)};
  for (const spec::CorpusShare& share : recipe.data.train.corpora) {
    paths.push_back(data::corpus_paths(share.prefix).tokenizer);
  }
  for (const std::string& path : paths) {
    if (files.exists(path)) return data::load_tokenizer_file(files, path);
  }
  fail(ErrorKind::usage,
       "checkpoint.sample_tokens: {} needs a tokenizer, but '{}' was made without one; write "
       "checkpoint.sample_tokens=0",
       recipe.checkpoint.sample_tokens, spec::blend_text(recipe.data.train));
}

}  // namespace

CheckpointSampler::CheckpointSampler(FileSystem& files, const spec::Recipe& recipe,
                                     const std::string& run_folder)
    : files_(files),
      prompt_text_(recipe.checkpoint.sample_prompt),
      tokens_(recipe.checkpoint.sample_tokens),
      tokenizer_(sampler_tokenizer(files, recipe, run_folder)),
      prompt_(data::encode_start(*tokenizer_, prompt_text_)) {
  if (prompt_.empty()) {
    fail(ErrorKind::usage,
         "checkpoint.sample_prompt: the tokenizer '{}' has no token that starts a text; give at "
         "least one character",
         tokenizer_->name());
  }
  if (static_cast<int64_t>(prompt_.size()) >= recipe.model.context) {
    fail(ErrorKind::usage,
         "checkpoint.sample_prompt: {} tokens exceed the model's context of {}; shorten "
         "it",
         prompt_.size(), recipe.model.context);
  }
}

telemetry::TextGenerated CheckpointSampler::write(const std::string& checkpoint,
                                                  int threads) const {
  const double begin = monotonic_seconds();
  LoadedRun run = find_run(files_, checkpoint, false);
  run.recipe.threads = threads;
  GenerationWeights weights(run.recipe);
  read_parameters(files_, run,
                  [&](const spec::PlacedParam& placed, int64_t first,
                      const std::vector<float>& values) { weights.set(placed, first, values); });
  SamplingOptions sampling;
  sampling.tokens = tokens_;
  std::vector<int32_t> ids;
  telemetry::TextGenerated event;
  event.step = run.step;
  event.prompt = prompt_text_;
  generate(weights, prompt_, sampling, [&](int32_t id) {
    if (id == tokenizer_->end_of_document()) return false;
    ++event.tokens;
    // A model may have more rows than its tokenizer has tokens; those say nothing.
    if (id < tokenizer_->vocabulary_size()) ids.push_back(id);
    return true;
  });
  event.text = tokenizer_->decode_rest(ids);
  event.seconds = monotonic_seconds() - begin;
  return event;
}

}  // namespace tutti::train
