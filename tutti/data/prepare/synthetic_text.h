// Text of an invented language: training data that is the same everywhere and needs no download.
//
// A document is a pure function of (seed, index), in integer arithmetic only, so that it has the
// same bytes on every machine. The language has what makes real text take long to learn, at every
// distance: words made of syllables, with a few frequent and many rare ones (Zipf); suffixes that
// agree with a subject further back; clauses nested in clauses; a topic per document, which decides
// the words that are frequent in it; people who keep their home and trade through a document; sums
// that are right; lists repeated backwards.
//
//   Vomi lives in Ketu. Vomi is a tapon. The dorans that the kile sees sut near the fat bima. ...
//
// ASCII, sentences separated by a space, paragraphs by a line end; about 1,150 bytes, 300 to 4,000.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tutti/base/file.h"

namespace tutti::data {

class SyntheticLanguage {
 public:
  explicit SyntheticLanguage(uint64_t seed);
  ~SyntheticLanguage();
  SyntheticLanguage(const SyntheticLanguage&) = delete;
  SyntheticLanguage& operator=(const SyntheticLanguage&) = delete;

  std::string document(uint64_t index) const;

 private:
  struct Lexicon;
  std::unique_ptr<Lexicon> lexicon_;
};

struct SyntheticTextSummary {
  int64_t documents = 0;
  int64_t bytes = 0;      // of the documents
  std::string file_hash;  // XXH3 of the file
};

// Writes documents 0 .. count - 1 as JSON lines, {"text": ...}, to `path`, replacing it.
// `progress` as in prepare.h, with documents.
SyntheticTextSummary write_synthetic_text(
    FileSystem& files, const std::string& path, uint64_t seed, int64_t count,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace tutti::data
