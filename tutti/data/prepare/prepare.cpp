#include "tutti/data/prepare/prepare.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/object_store.h"
#include "tutti/base/text.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/corpus/meta.h"
#include "tutti/data/prepare/encode.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/data/prepare/tail_split.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/data/tokenizers/char_tokenizer.h"

namespace tutti::data {
namespace {

class Progress {
 public:
  Progress(const std::function<void(int64_t, int64_t)>& callback, int64_t total)
      : callback_(callback), total_(total) {}

  void advance(int64_t bytes) {
    done_ += bytes;
    if (!callback_ || monotonic_seconds() - last_ < kInterval) return;
    last_ = monotonic_seconds();
    callback_(done_, total_);
  }
  void finish() const {
    if (callback_) callback_(total_, total_);
  }

 private:
  static constexpr double kInterval = 0.05;

  const std::function<void(int64_t, int64_t)>& callback_;
  const int64_t total_;
  int64_t done_ = 0;
  double last_ = 0;
};

// A preparation of this name was killed while its files took their names.
bool is_pending(FileSystem& files, const PrepareOptions& options) {
  return files.exists(options.prefix + kPendingSuffix);
}

// A chat template says what a text starts and ends with, and which control tokens it has.
void check_chat_options(const PrepareOptions& options) {
  if (options.chat_template.empty()) {
    if (options.answers == chat::Answers::all) return;
    fail(ErrorKind::usage, "--answers goes with --chat-template");
  }
  if (options.exchange.message_template != ExchangeKeys().message_template) {
    fail(ErrorKind::usage,
         "--template and --chat-template both say how messages are written; give "
         "one of them");
  }
  if (!options.tokenizer_options.begin.empty() && options.tokenizer_options.begin != "none") {
    fail(ErrorKind::usage, "--bos: the chat template writes what a conversation starts with");
  }
  if (options.tokenizer_options.special) {
    fail(ErrorKind::usage,
         "--special: a chat template writes control tokens itself, and messages must not");
  }
}

void check_options(FileSystem& files, const PrepareOptions& options) {
  if (options.prefix.empty() || options.prefix.back() == '/') {
    fail(ErrorKind::usage, "the output '{}' is not a name; give a path such as data/corpus",
         options.prefix);
  }
  if (!(options.holdout_share >= 0 && options.holdout_share < 1)) {
    fail(ErrorKind::usage, "the holdout share is {}; it is at least 0 and below 1",
         options.holdout_share);
  }
  if (options.holdout_share == 0 && options.split != SplitMethod::automatic) {
    fail(ErrorKind::usage, "split '{}' without a holdout: give a holdout share such as 0.05",
         split_method_name(options.split));
  }
  if (!options.notes.empty() && options.notes.size() != options.sources.size()) {
    fail(ErrorKind::usage, "{} notes for {} sources", options.notes.size(), options.sources.size());
  }
  check_exchange_keys(options.exchange);
  check_chat_options(options);
  if (options.exchange.any() && options.split == SplitMethod::tail) {
    fail(ErrorKind::usage, "split 'tail' would cut an exchange in two; use 'documents'");
  }
  if (options.threads < 0)
    fail(ErrorKind::usage, "threads is {}; it is 0 or more", options.threads);
  if (options.overwrite || is_pending(files, options)) return;
  std::vector<std::string> prefixes = {options.prefix};
  if (options.holdout_share > 0) prefixes.push_back(validation_prefix(options.prefix));
  for (const std::string& prefix : prefixes) {
    const CorpusPaths paths = corpus_paths(prefix);
    for (const std::string& path : {paths.bin, paths.idx}) {
      if (files.exists(path)) {
        fail(ErrorKind::usage,
             "'{}' exists already; choose another name, or overwrite it (--overwrite)", path);
      }
    }
  }
}

// Sets the method, never `automatic`, and why.
SplitMethod choose_split(const PrepareOptions& options, const std::vector<SourceFile>& files,
                         PrepareResult& result) {
  const double share = options.holdout_share;
  SplitMethod method = options.split;
  if (share == 0) {
    result.split = "none";
    result.split_reason = "No holdout was asked for.";
    return SplitMethod::documents;
  }
  if (method == SplitMethod::automatic) {
    const bool all_text = std::all_of(files.begin(), files.end(), [](const SourceFile& file) {
      return file.content == Content::text;
    });
    const double expected = share * static_cast<double>(files.size());
    method = all_text && expected < 1 && !options.exchange.any() ? SplitMethod::tail
                                                                 : SplitMethod::documents;
    result.split_reason =
        method == SplitMethod::documents
            ? "Whole documents are held out, chosen by a hash of their name or text."
        : files.size() == 1
            ? "There is a single document, so its last part is held out."
            : fmt::format(
                  "A share of {} is less than one of {} files, so the last tokens are "
                  "held out.",
                  share, files.size());
  } else {
    result.split_reason = "As asked for.";
  }
  result.split = split_method_name(method);
  return method;
}

// The character tokenizer of the sources.
std::unique_ptr<Tokenizer> make_char_tokenizer(const EncodeJob& job, Progress& progress) {
  const Vocabulary found = collect_vocabulary(job, [&](int64_t bytes) { progress.advance(bytes); });
  std::vector<char32_t> characters = found.characters.sorted();
  if (characters.empty()) return std::make_unique<ByteTokenizer>();  // fails below: no text
  return std::make_unique<CharTokenizer>(std::move(characters), found.documents > 1);
}

// The next tokens of the document that is being written are not trained on.
void mask(int64_t tokens, CorpusPart& part) {
  if (part.open_masked == part.open_tokens) {
    part.open_masked += tokens;
  } else if (tokens > 0) {
    const auto begin = static_cast<uint32_t>(part.open_tokens);
    part.masked_further.push_back(
        {part.masked.size(), begin, begin + static_cast<uint32_t>(tokens)});
  }
}

// Encodes all sources into parts[0] and, what is held out, parts[1].
void write_parts(const EncodeJob& job, const Tokenizer& tokenizer, const Holdout& holdout,
                 std::vector<CorpusPart>& parts, Lineage& lineage, Progress& progress,
                 PrepareResult& result) {
  const DType dtype = token_dtype(tokenizer.vocabulary_size());
  std::vector<std::vector<SourceCount>*> counts;
  counts.reserve(parts.size());
  for (CorpusPart& part : parts) counts.push_back(&part.counts);
  encode_documents(job, tokenizer, dtype, holdout, [&](EncodedBlock& block) {
    const char* next = block.packed.data();
    for (const EncodedSegment& segment : block.segments) {
      CorpusPart& part = parts[segment.held_out ? 1 : 0];
      part.writer->append_packed(next, segment.tokens);
      if (segment.prompt) mask(segment.tokens, part);
      part.open_tokens += segment.tokens;
      if (segment.ends_document) part.writer->end_document();
      if (segment.ends_document && job.exchange.any()) {
        part.masked.push_back(static_cast<uint32_t>(std::exchange(part.open_masked, 0)));
      }
      if (segment.ends_document) part.open_tokens = 0;
      next += segment.tokens * dtype_bytes(dtype);
    }
    for (size_t i = 0; i < parts.size(); ++i) parts[i].text_bytes += block.text_bytes[i];
    for (const auto& [file, reason] : block.skipped) {
      count_skipped(result.skipped, reason, job.files[file].path);
      if (reason == "empty document") continue;  // the file itself was read
      --result.files;
      result.source_bytes -= job.files[file].size_bytes;
    }
    lineage.add(block, counts);
    progress.advance(block.source_bytes);
  });
  for (CorpusPart& part : parts) part.summary = part.writer->finish();
}

void check_parts(const std::vector<CorpusPart>& parts, const PrepareOptions& options,
                 const PrepareResult& result) {
  int64_t tokens = 0;
  for (const CorpusPart& part : parts) tokens += part.summary.tokens;
  if (tokens == 0) {
    std::vector<std::string> why;
    for (const Skipped& entry : result.skipped) {
      why.push_back(fmt::format("{} {}", entry.count, entry.reason));
    }
    fail(ErrorKind::usage, "no text in {}{}", join(options.sources, ", "),
         why.empty() ? "" : " (passed over: " + join(why, ", ") + ")");
  }
  for (const CorpusPart& part : parts) {
    if (part.summary.tokens > 0) continue;
    fail(ErrorKind::usage,
         "a holdout of {} by {} leaves nothing in '{}'; use another share, or split 'tail'",
         options.holdout_share, result.split, part.prefix);
  }
}

// What was stated for all sources holds where nothing was stated for one.
std::vector<SourceNote> notes_of(const PrepareOptions& options) {
  std::vector<SourceNote> notes = options.notes;
  notes.resize(options.sources.size());
  for (SourceNote& note : notes) {
    if (note.licence.empty()) note.licence = options.licence;
    if (note.data_class.empty()) note.data_class = options.data_class;
  }
  return notes;
}

CorpusMeta describe(const PrepareOptions& options, const PrepareResult& result,
                    const Lineage& lineage, const Tokenizer& tokenizer, const CorpusPart& part,
                    const char* part_name) {
  CorpusMeta meta;
  meta.created = format_utc(wall_seconds());
  meta.tokenizer = result.tokenizer;
  meta.tokenizer_hash = tokenizer_hash(tokenizer);
  meta.vocabulary_size = result.vocabulary;
  meta.dtype = dtype_name(token_dtype(result.vocabulary));
  meta.documents = part.summary.documents;
  meta.tokens = part.summary.tokens;
  meta.bin_bytes = part.summary.bin_bytes;
  meta.bin_xxh3 = part.summary.content_hash;
  meta.text_bytes = part.text_bytes;
  meta.sources = lineage.describe(options.sources, notes_of(options), part.counts);
  meta.files = result.files;
  meta.source_bytes = result.source_bytes;
  meta.part = part_name;
  meta.split_method = result.split;
  meta.split_share = options.holdout_share;
  meta.split_seed = options.split_seed;
  for (const Skipped& entry : result.skipped) meta.skipped.emplace_back(entry.reason, entry.count);
  meta.licence = options.licence;
  meta.data_class = options.data_class;
  return meta;
}

// Removes the old corpus: from here on, until commit, there is none of this name.
void remove_old(FileSystem& files, const PrepareOptions& options) {
  std::vector<std::string> paths;
  const CorpusPaths validation = corpus_paths(validation_prefix(options.prefix));
  if (options.holdout_share > 0) {
    paths.insert(paths.end(), {validation.idx, validation.mask});
  } else if (files.exists(validation.meta) &&
             load_corpus_meta(files, validation_prefix(options.prefix)).part == "validation") {
    // The held-out part of the corpus that is replaced would pass for the new one's.
    paths.insert(paths.end(), {validation.idx, validation.bin, validation.tokenizer,
                               validation.meta, validation.mask, validation.checksums});
    files.remove_tree(tokenizer_folder(validation.tokenizer));
  }
  paths.push_back(corpus_paths(options.prefix).idx);
  paths.push_back(corpus_paths(options.prefix).mask);
  for (const std::string& path : paths) {
    if (files.exists(path)) files.remove_file(path);
  }
  files.sync_directory(parent_path(options.prefix));
}

// Of the corpus that is then divided: beside the result, or on this machine where that is in an
// object store.
std::string whole_prefix(FileSystem& files, const std::string& prefix) {
  ObjectStore* store = object_store(files, prefix);
  if (store == nullptr) return prefix + ".whole";
  const std::string folder = store->spool_folder();
  files.create_directories(folder);
  return join_path(folder, fmt::format("{:08x}.whole", std::random_device{}()));
}

void commit(FileSystem& files, const PrepareOptions& options, const Tokenizer& tokenizer,
            const PrepareResult& result, const Lineage& lineage, std::vector<CorpusPart>& parts) {
  const bool replaces = options.overwrite || is_pending(files, options);
  const std::string pending = options.prefix + kPendingSuffix;
  write_file_atomic(files, pending, "");
  if (replaces) remove_old(files, options);
  for (size_t i = 0; i < parts.size(); ++i) {
    const char* name = parts.size() == 1 ? "all" : i == 0 ? "training" : "validation";
    const CorpusPaths paths = corpus_paths(parts[i].prefix);
    store_tokenizer(files, tokenizer, paths.tokenizer);
    if (options.exchange.any()) {
      write_file_atomic(
          files, paths.mask,
          loss_mask_bytes(parts[i].masked, parts[i].summary.tokens, parts[i].masked_further));
    } else if (files.exists(paths.mask)) {
      files.remove_file(paths.mask);  // of a corpus that was removed
    }
    const CorpusMeta meta = describe(options, result, lineage, tokenizer, parts[i], name);
    write_file_atomic(
        files, paths.meta,
        corpus_meta_json(meta).dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  for (size_t i = parts.size(); i-- > 0;) parts[i].writer->commit();
  files.remove_file(pending);
  files.sync_directory(parent_path(pending));
}

}  // namespace

SplitMethod parse_split_method(const std::string& name) {
  for (const auto method : {SplitMethod::automatic, SplitMethod::documents, SplitMethod::tail}) {
    if (name == split_method_name(method)) return method;
  }
  fail(ErrorKind::usage, "unknown split '{}'; choose auto, documents or tail", name);
}

const char* split_method_name(SplitMethod method) {
  switch (method) {
    case SplitMethod::automatic: return "auto";
    case SplitMethod::documents: return "documents";
    case SplitMethod::tail: return "tail";
  }
  check_failed(__FILE__, __LINE__, "known split method", "");
}

PrepareResult prepare(FileSystem& files, const PrepareOptions& given) {
  PrepareOptions options = given;
  if (!options.chat_template.empty() && options.exchange.messages.empty()) {
    options.exchange.messages = "messages";
  }
  const double start = monotonic_seconds();
  check_options(files, options);
  const bool by_character = options.tokenizer == "char";
  std::unique_ptr<Tokenizer> tokenizer;
  if (!by_character) {
    tokenizer = open_tokenizer(files, options.tokenizer, options.tokenizer_options);
  }

  PrepareResult result;
  std::vector<SourceFile> sources =
      list_sources(files, options.sources, {options.include, options.prefix}, result.skipped);
  result.files = static_cast<int64_t>(sources.size());
  for (SourceFile& file : sources) {
    result.source_bytes += file.size_bytes;
    if (!options.notes.empty()) file.json_key = options.notes[file.source].json_key;
  }
  const SplitMethod split = choose_split(options, sources, result);

  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::unique_ptr<const ConversationWriter> conversations;
  if (!options.chat_template.empty()) {
    conversations =
        std::make_unique<const ConversationWriter>(files, options.chat_template, options.tokenizer,
                                                   options.exchange.messages, options.answers);
  }
  const EncodeJob job{files,
                      sources,
                      options.json_key,
                      options.exchange,
                      options.threads > 0 ? options.threads : cores,
                      conversations.get()};
  const int64_t passes = by_character ? 2 : 1;
  Progress progress(options.progress, passes * result.source_bytes);
  if (by_character) tokenizer = make_char_tokenizer(job, progress);
  result.tokenizer = tokenizer->name();
  result.vocabulary = tokenizer->vocabulary_size();
  const DType dtype = token_dtype(result.vocabulary);

  files.create_directories(parent_path(options.prefix));
  std::vector<CorpusPart> parts(1);
  parts[0].prefix = options.prefix;
  if (options.holdout_share > 0) {
    parts.emplace_back();
    parts[1].prefix = validation_prefix(options.prefix);
  }
  for (CorpusPart& part : parts) part.counts.resize(options.sources.size());
  Lineage lineage(sources);
  if (split == SplitMethod::tail) {
    const TemporaryCorpus whole(files, whole_prefix(files, options.prefix));
    std::vector<CorpusPart> undivided(1);
    undivided[0].counts.resize(options.sources.size());
    undivided[0].writer = std::make_unique<CorpusWriter>(files, whole.prefix(), dtype,
                                                         kMaxSequenceTokens, /*durable=*/false);
    write_parts(job, *tokenizer, Holdout(0, 0), undivided, lineage, progress, result);
    check_parts(undivided, options, result);
    undivided[0].writer->commit();
    write_tail_split(files, whole.prefix(), undivided[0].counts, *tokenizer, options.holdout_share,
                     parts);
  } else {
    for (CorpusPart& part : parts) {
      part.writer = std::make_unique<CorpusWriter>(files, part.prefix, dtype);
    }
    write_parts(job, *tokenizer, Holdout(options.holdout_share, options.split_seed), parts, lineage,
                progress, result);
  }
  check_parts(parts, options, result);
  progress.finish();  // may cancel, and after it nothing does
  commit(files, options, *tokenizer, result, lineage, parts);
  std::vector<SourceCount> counts(options.sources.size());
  for (const CorpusPart& part : parts) {
    for (size_t i = 0; i < counts.size(); ++i) {
      counts[i].documents += part.counts[i].documents;
      counts[i].tokens += part.counts[i].tokens;
    }
  }
  result.sources = lineage.describe(options.sources, notes_of(options), counts);

  result.training = {parts[0].prefix, parts[0].summary, parts[0].text_bytes};
  if (parts.size() > 1) {
    result.validation = PreparedPart{parts[1].prefix, parts[1].summary, parts[1].text_bytes};
  }
  result.seconds = monotonic_seconds() - start;
  result.bytes_per_second = static_cast<double>(result.source_bytes) / result.seconds;
  return result;
}

}  // namespace tutti::data
