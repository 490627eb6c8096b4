// The parallel part of prepare(): documents of source files to stored tokens, in order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"
#include "tutti/data/prepare/conversation.h"
#include "tutti/data/prepare/exchange.h"
#include "tutti/data/prepare/sources.h"
#include "tutti/data/tokenizers/char_tokenizer.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

// Decides by name which documents are held out; a share of 0 holds out none.
class Holdout {
 public:
  Holdout(double share, uint64_t seed);
  double draw(std::string_view name) const;  // uniform in [0, 1), a pure function of seed and name
  bool holds_out(std::string_view name) const { return draw(name) < share_; }
  // Of every file, whether it is held out: by its name, and if that holds out no text file at
  // all, the one with the smallest draw. JSON-lines files are decided per document instead.
  std::vector<bool> choose(const std::vector<SourceFile>& files) const;

 private:
  double share_;
  uint64_t key_;
};

struct EncodedSegment {
  size_t file = 0;
  bool held_out = false;
  bool ends_document = false;
  int64_t tokens = 0;
  bool prompt = false;  // not trained on
};

struct EncodedBlock {
  std::vector<char> packed;  // the tokens of all segments, as stored
  std::vector<EncodedSegment> segments;
  int64_t text_bytes[2] = {0, 0};                       // kept, held out
  int64_t source_bytes = 0;                             // progress, as stored
  std::vector<std::pair<size_t, std::string>> skipped;  // file, reason
  std::vector<std::pair<size_t, uint64_t>> hashes;      // file, XXH3 of its stored bytes
};

struct EncodeJob {
  FileSystem& file_system;
  const std::vector<SourceFile>& files;
  std::string json_key;
  ExchangeKeys exchange;
  int threads;
  const ConversationWriter* conversations = nullptr;  // where a chat template writes documents
};

// Calls `consume` on this thread with the blocks in document order.
void encode_documents(const EncodeJob& job, const Tokenizer& tokenizer, DType dtype,
                      const Holdout& holdout, const std::function<void(EncodedBlock&)>& consume);

struct Vocabulary {
  CharacterSet characters;
  int64_t documents = 0;
};

// The characters of all documents. `progress` is called with bytes of the sources, as stored.
Vocabulary collect_vocabulary(const EncodeJob& job,
                              const std::function<void(int64_t bytes)>& progress);

}  // namespace tutti::data
