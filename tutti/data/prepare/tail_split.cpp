#include "tutti/data/prepare/tail_split.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"

namespace tutti::data {
namespace {

int64_t decoded_bytes(const Corpus& corpus, const Tokenizer& tokenizer, int64_t first,
                      int64_t count) {
  constexpr int64_t kStep = int64_t{1} << 16;
  std::vector<int32_t> ids(kStep);
  int64_t bytes = 0;
  for (const int64_t end = first + count; first < end; first += kStep) {
    const int64_t step = std::min(kStep, end - first);
    corpus.read(first, step, ids.data());
    bytes +=
        static_cast<int64_t>(tokenizer.decode_rest({ids.data(), static_cast<size_t>(step)}).size());
  }
  return bytes;
}

// Copies tokens [first, first + count) of `whole`, ending documents where they end there.
// `sources`: how many documents each source gave, one source after the other.
void copy_tokens(const Corpus& whole, const std::vector<SourceCount>& sources, int64_t first,
                 int64_t count, CorpusPart& part) {
  const int64_t width = dtype_bytes(whole.dtype());
  size_t source = 0;
  int64_t source_end = sources[0].documents;
  for (int64_t d = 0; d < whole.documents(); ++d) {
    while (d >= source_end) source_end += sources[++source].documents;
    const auto [document_first, document_count] = whole.document_range(d);
    const int64_t begin = std::max(first, document_first);
    const int64_t end = std::min(first + count, document_first + document_count);
    if (begin >= end) continue;
    part.writer->append_packed(whole.bin_bytes().data() + begin * width, end - begin);
    part.writer->end_document();
    ++part.counts[source].documents;
    part.counts[source].tokens += end - begin;
  }
}

}  // namespace

void write_tail_split(FileSystem& files, const std::string& whole_prefix,
                      const std::vector<SourceCount>& sources, const Tokenizer& tokenizer,
                      double share, std::vector<CorpusPart>& parts) {
  const Corpus whole(files, whole_prefix);
  const int64_t tokens = whole.tokens();
  const auto kept = static_cast<int64_t>(static_cast<double>(tokens) * (1 - share));
  const int64_t first[2] = {0, kept};
  const int64_t count[2] = {kept, tokens - kept};
  for (size_t i = 0; i < 2; ++i) {
    parts[i].writer = std::make_unique<CorpusWriter>(files, parts[i].prefix, whole.dtype());
    copy_tokens(whole, sources, first[i], count[i], parts[i]);
    parts[i].text_bytes = decoded_bytes(whole, tokenizer, first[i], count[i]);
    parts[i].summary = parts[i].writer->finish();
  }
}

TemporaryCorpus::~TemporaryCorpus() {
  const CorpusPaths paths = corpus_paths(prefix_);
  for (const std::string& path : {paths.bin, paths.idx}) {
    try {
      if (files_.exists(path)) files_.remove_file(path);
    } catch (const Error&) {  // only a temporary file; the next run replaces it
    }
  }
}

}  // namespace tutti::data
