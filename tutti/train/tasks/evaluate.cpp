#include "tutti/train/tasks/evaluate.h"

#include <algorithm>
#include <memory>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/corpus/meta.h"
#include "tutti/data/loader/loader.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/train/tasks/evaluator.h"

namespace tutti::train {

int64_t predicted_text_bytes(FileSystem& files, const std::string& prefix,
                             const data::Tokenizer* tokenizer, const spec::DataConfig& data) {
  data::CorpusOptions how;
  how.by_pieces = true;
  how.cache = {data.cache, data.cache_bytes};
  const data::Corpus corpus(files, prefix, how);
  const auto mask = data::open_loss_mask(files, corpus);
  const bool packed = data.packing == spec::Packing::documents;
  const std::string meta = data::corpus_paths(prefix).meta;
  if (!mask && !packed && files.exists(meta)) {
    const data::CorpusMeta known = data::load_corpus_meta(files, prefix);
    if (known.tokens == corpus.tokens()) return known.text_bytes;
  }
  if (tokenizer == nullptr) return 0;
  constexpr int64_t kTokensAhead = int64_t{1} << 20;
  int64_t announced = 0;
  int64_t bytes = 0;
  std::vector<int32_t> ids;
  for (int64_t document = 0; document < corpus.documents(); ++document) {
    const data::Corpus::TokenRange range = corpus.document_range(document);
    while (announced < std::min(corpus.tokens(), range.first + range.count + kTokensAhead / 2)) {
      const int64_t count = std::min(kTokensAhead, corpus.tokens() - announced);
      corpus.will_need(announced, count);
      announced += count;
    }
    // A packed document's first token is nothing's target.
    const int64_t given = std::max<int64_t>(packed ? 1 : 0, mask ? mask->masked(document) : 0);
    const auto add = [&](int64_t begin, int64_t end) {
      if (begin >= end) return;
      ids.resize(static_cast<size_t>(end - begin));
      corpus.read(range.first + begin, end - begin, ids.data());
      bytes += static_cast<int64_t>(
          (begin == 0 ? tokenizer->decode(ids) : tokenizer->decode_rest(ids)).size());
    };
    int64_t next = given;
    if (mask) {
      for (const data::MaskedRange& hidden : mask->further(document)) {
        add(next, hidden.begin);
        next = std::max<int64_t>(given, hidden.end);
      }
    }
    add(next, range.count);
  }
  return bytes;
}

RunEvaluation evaluate_run(FileSystem& files, const LoadedRun& run, const spec::CorpusBlend& blend,
                           const std::function<void(int64_t, int64_t)>& progress) {
  const spec::Recipe& recipe = run.recipe;
  data::EvalLoaderOptions options;
  options.rows = recipe.batch.micro;
  const data::DatasetOptions dataset = {recipe.batch.sequence,
                                        recipe.data.packing,
                                        recipe.model.vocabulary,
                                        recipe.train.seed,
                                        {recipe.data.cache, recipe.data.cache_bytes}};
  data::Loader loader(std::make_shared<const data::Dataset>(files, blend, dataset), options);
  Evaluator evaluator(recipe, run.master.data());

  const double begin = monotonic_seconds();
  RunEvaluation result;
  double sum = 0;
  const int64_t batches = loader.batches_per_pass();
  for (int64_t i = 0; i < batches; ++i) {
    const data::Batch& batch = loader.next();
    const EvaluationResult part =
        evaluator.evaluate({batch.tokens, batch.targets, 0, batch.positions, batch.starts});
    sum += part.loss * static_cast<double>(part.tokens);
    result.tokens += part.tokens;
    progress(i + 1, batches);
  }
  if (result.tokens == 0) {
    fail(ErrorKind::usage, "every target of '{}' is masked: there is no loss to measure",
         spec::blend_text(blend));
  }
  result.loss = sum / static_cast<double>(result.tokens);
  result.seconds = monotonic_seconds() - begin;
  return result;
}

}  // namespace tutti::train
