#include "tutti/data/corpus/require_corpus.h"

#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"

namespace tutti::data {
namespace {

[[noreturn]] void fail_missing(FileSystem& files, const std::string& prefix) {
  const CorpusPaths paths = corpus_paths(prefix);
  const bool bin = files.exists(paths.bin);
  const bool idx = files.exists(paths.idx);
  if (bin || idx) {
    fail(ErrorKind::not_found,
         "corpus '{}' is incomplete: '{}' exists, but '{}' does not; prepare the corpus "
         "again",
         prefix, bin ? paths.bin : paths.idx, bin ? paths.idx : paths.bin);
  }
  for (const char* suffix : {".bin", ".idx"}) {
    if (!ends_with(prefix, suffix)) continue;
    const std::string shorter = prefix.substr(0, prefix.size() - std::strlen(suffix));
    if (corpus_exists(files, shorter)) {
      fail(ErrorKind::not_found, "a corpus is named by its prefix: write '{}' instead of '{}'",
           shorter, prefix);
    }
  }
  fail(ErrorKind::not_found,
       "no corpus '{}': neither '{}' nor '{}' exists; `tutti data prepare` makes one", prefix,
       paths.bin, paths.idx);
}

}  // namespace

void require_corpus(FileSystem& files, const std::string& prefix) {
  if (!corpus_exists(files, prefix)) fail_missing(files, prefix);
}

void require_tokens(FileSystem& files, const std::string& prefix) {
  const CorpusPaths paths = corpus_paths(prefix);
  constexpr int64_t kSmallestIndexBytes = kIndexHeaderBytes + 4 + 8 + 2 * 8;  // of one sequence
  const int64_t index_bytes = files.size_bytes(paths.idx);
  if (index_bytes < kSmallestIndexBytes) {
    fail(ErrorKind::corrupt,
         "corpus '{}' is empty or damaged: '{}' has {} bytes, and the index of one sequence has "
         "{}; prepare the corpus again",
         prefix, paths.idx, index_bytes, kSmallestIndexBytes);
  }
  if (files.size_bytes(paths.bin) == 0) {
    fail(ErrorKind::corrupt, "corpus '{}' is empty: '{}' holds no tokens; prepare the corpus again",
         prefix, paths.bin);
  }
}

}  // namespace tutti::data
