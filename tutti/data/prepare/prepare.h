// From text to a corpus: reads sources on all cores, encodes them and writes PREFIX.* and, with a
// holdout, PREFIX-validation.* (data/corpus/format.h). The result is a pure function of the sources
// and options: it does not depend on the number of threads. Memory is bounded, whatever the size
// of a source (JSON lines: of a line).
//
// Sources are files or folders (sources.h): a text file is one document, JSON lines are one
// document per line, either plain, .gz or .zst. Every document ends with the tokenizer's
// end-of-document token, where it has one.
//
// Lines that are exchanges (exchange.h) become documents whose prompts are masked (loss_mask.h);
// they are held out by whole documents. So are conversations that a chat template writes
// (conversation.h), of which only answers of the assistant are trained on.
//
// Holdout, a share of the documents or tokens that goes to PREFIX-validation:
//   documents  a document is held out when a hash of (split_seed, name) falls below the share.
//              The name is a text file's path below its source, or the text of a JSON line, so
//              equal texts stay together and adding documents moves none. If that holds out no
//              text file at all, the one with the smallest hash is.
//   tail       the last share of the tokens, in source order; the first is floor(n (1 - share))
//              tokens, as in nanoGPT. The document at the cut is divided.
//   auto       tail when text files alone are read and share × files < 1, such as for a single
//              file; else documents. The result says which and why.
//
// Everything is written under temporary names and renamed at the end, indices last: an
// interrupted run leaves no corpus that looks complete. An existing corpus is refused (usage)
// unless `overwrite`; then its validation part is replaced or removed with it.
//
// Errors: usage for options and for sources without text; not_found, permission; corrupt with
// file:line for a bad JSON line, with file for damaged compressed data; no_space.
// In folders, binary, empty and unreadable files are skipped and counted; named directly they are
// errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/corpus/lineage.h"
#include "tutti/data/corpus/writer.h"
#include "tutti/data/prepare/conversation.h"
#include "tutti/data/prepare/exchange.h"
#include "tutti/data/prepare/sources.h"
#include "tutti/data/tokenizers/tokenizer_source.h"

namespace tutti::data {

enum class SplitMethod { automatic, documents, tail };
SplitMethod parse_split_method(const std::string& name);  // auto, documents, tail; throws usage
const char* split_method_name(SplitMethod method);

struct PrepareOptions {
  std::vector<std::string> sources;
  std::vector<SourceNote> notes;  // one per source, or none
  std::string prefix;
  // "char", whose vocabulary is made from the sources, or what open_tokenizer() reads.
  std::string tokenizer = "byte";
  TokenizerOptions tokenizer_options;
  std::vector<std::string> include;  // suffixes wanted from folders, see sources.h; empty: all
  std::string json_key = "text";
  ExchangeKeys exchange;  // of prompts and completions, or messages, instead of json_key
  // Of conversations (conversation.h), where not empty: a file, a folder, or "tokenizer". Messages
  // are under exchange.messages, or else "messages".
  std::string chat_template = {};
  chat::Answers answers = chat::Answers::all;  // which of them are trained on
  double holdout_share = 0;                    // in [0, 1)
  SplitMethod split = SplitMethod::automatic;
  uint64_t split_seed = 0;
  bool overwrite = false;
  int threads = 0;                  // worker threads; 0: one per core
  std::string licence, data_class;  // recorded in PREFIX.meta.json when not empty
  // Called on the calling thread, at most 20 times a second and once at the end, with bytes of
  // the sources as stored (twice their size for `char`, which reads everything twice). An
  // exception of it cancels: nothing is left behind.
  std::function<void(int64_t done, int64_t total)> progress;
};

struct PreparedPart {
  std::string prefix;
  CorpusSummary corpus;
  int64_t text_bytes = 0;  // of the documents, before encoding
};

struct PrepareResult {
  PreparedPart training;
  std::optional<PreparedPart> validation;
  std::string tokenizer;
  int32_t vocabulary = 0;
  std::string split;         // "none", "documents" or "tail"
  std::string split_reason;  // one sentence
  int64_t files = 0;         // that were read
  int64_t source_bytes = 0;  // of those, as stored
  double seconds = 0;
  double bytes_per_second = 0;  // source_bytes / seconds
  std::vector<Skipped> skipped;
  std::vector<SourceMeta> sources;  // documents and tokens of both parts together
};

PrepareResult prepare(FileSystem& files, const PrepareOptions& options);

}  // namespace tutti::data
