#include "tutti/data/corpus/inspect.h"

#include <algorithm>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/data/corpus/checksums.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/loader/packing.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {
namespace {

void add_check(CorpusInspection& out, std::string name, bool ok, std::string detail) {
  out.checks.push_back({std::move(name), ok, std::move(detail)});
  out.ok = out.ok && ok;
}

void measure_documents(const Corpus& corpus, CorpusInspection& out) {
  for (int64_t d = 0; d < corpus.documents(); ++d) {
    const int64_t tokens = corpus.document_range(d).count;
    out.shortest_document = d == 0 ? tokens : std::min(out.shortest_document, tokens);
    out.longest_document = std::max(out.longest_document, tokens);
  }
  if (corpus.documents() > 0) {
    out.mean_document =
        static_cast<double>(corpus.tokens()) / static_cast<double>(corpus.documents());
  }
}

std::unique_ptr<Tokenizer> inspect_tokenizer(FileSystem& files, CorpusInspection& out) {
  const std::string path = corpus_paths(out.prefix).tokenizer;
  if (!files.exists(path)) {
    add_check(out, "tokenizer", true, "The corpus came without a tokenizer; ids are not decoded.");
    return nullptr;
  }
  try {
    auto tokenizer = load_tokenizer_file(files, path);
    out.tokenizer = tokenizer->name();
    out.vocabulary = tokenizer->vocabulary_size();
    out.end_of_document = tokenizer->end_of_document();
    add_check(out, "tokenizer", true, fmt::format("{}, {} ids.", out.tokenizer, out.vocabulary));
    return tokenizer;
  } catch (const Error& error) {
    add_check(out, "tokenizer", false, error.what());
    return nullptr;
  }
}

void inspect_meta(FileSystem& files, CorpusInspection& out) {
  const std::string path = corpus_paths(out.prefix).meta;
  if (!files.exists(path)) {
    add_check(out, "meta", true, "The corpus came without a description of its sources.");
    return;
  }
  try {
    out.meta = load_corpus_meta(files, out.prefix);
  } catch (const Error& error) {
    add_check(out, "meta", false, error.what());
    return;
  }
  const bool counts = out.meta->documents == out.documents && out.meta->tokens == out.tokens &&
                      out.meta->bin_bytes == out.bin_bytes;
  add_check(
      out, "meta", counts,
      counts ? "Counts are those recorded when it was prepared."
             : fmt::format("'{}' records {} documents and {} tokens; the corpus has {} and "
                           "{}.",
                           path, out.meta->documents, out.meta->tokens, out.documents, out.tokens));
  const bool same_tokenizer =
      out.tokenizer.empty() ||
      (out.meta->tokenizer == out.tokenizer && out.meta->vocabulary_size == out.vocabulary);
  if (!same_tokenizer) {
    add_check(out, "meta tokenizer", false,
              fmt::format(
                  "'{}' records tokenizer {} with {} ids; the one next to it is {} with {}.", path,
                  out.meta->tokenizer, out.meta->vocabulary_size, out.tokenizer, out.vocabulary));
  }
}

void inspect_mask(FileSystem& files, const Corpus& corpus, CorpusInspection& out) {
  try {
    const auto mask = open_loss_mask(files, corpus);
    if (!mask) return;
    out.masked_tokens = mask->masked_tokens();
    add_check(out, "mask", true, "The loss mask belongs to the corpus and its checksum holds.");
  } catch (const Error& error) {
    add_check(out, "mask", false, error.what());
  }
}

// Which bytes of .bin differ from what PREFIX.checksums records, not only that some do.
void inspect_checksums(FileSystem& files, const Corpus& corpus, bool verify,
                       CorpusInspection& out) {
  const CorpusPaths paths = corpus_paths(out.prefix);
  if (!files.exists(paths.checksums)) {
    add_check(out, "checksums", true,
              "There are none yet; the first run that reads the corpus records them.");
    return;
  }
  try {
    if (!verify) {
      const CorpusChecksums checksums(files, paths, corpus.bin_size_bytes(), corpus.idx_bytes());
      add_check(out, "checksums", true, "They belong to the corpus, and its index is as recorded.");
      return;
    }
    const CorpusChecksums checksums(files, paths, corpus.bin_bytes(), corpus.idx_bytes());
    constexpr size_t kNamed = 8;
    std::vector<std::string> ranges;
    for (const CorpusChecksums::ByteRange& range : checksums.damaged()) {
      if (ranges.size() == kNamed) {
        ranges.emplace_back("and more");
        break;
      }
      ranges.push_back(fmt::format("{} to {}", range.first, range.last));
    }
    add_check(out, "checksums", ranges.empty(),
              ranges.empty()
                  ? "All pieces of the tokens and the index are as recorded."
                  : fmt::format("'{}' is damaged in bytes {}.", paths.bin, join(ranges, ", ")));
  } catch (const Error& error) {
    add_check(out, "checksums", false, error.what());
  }
}

PackingInspection inspect_packing(const Corpus& corpus, int64_t sequence) {
  const PackedWindows packed(
      corpus.documents(), [&](int64_t d) { return corpus.document_range(d).count; }, sequence);
  PackingInspection out;
  out.sequence = sequence;
  out.windows = packed.windows();
  out.useful_rows = packed.useful_rows();
  out.useful_share = packed.useful_share();
  if (packed.windows() > 0) {
    out.attention_share = static_cast<double>(packed.squared_rows()) /
                          (static_cast<double>(packed.windows()) * static_cast<double>(sequence) *
                           static_cast<double>(sequence));
  }
  out.split_documents = packed.split_documents();
  out.documents_without_rows = packed.documents_without_rows();
  return out;
}

void verify_content(const Corpus& corpus, CorpusInspection& out) {
  constexpr int64_t kStep = int64_t{1} << 18;
  std::vector<int32_t> ids(static_cast<size_t>(std::min(kStep, corpus.tokens())));
  uint32_t largest = 0;
  for (int64_t first = 0; first < corpus.tokens(); first += kStep) {
    const int64_t count = std::min(kStep, corpus.tokens() - first);
    corpus.read(first, count, ids.data());
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max(largest, static_cast<uint32_t>(ids[static_cast<size_t>(i)]));
    }
  }
  out.largest_id = static_cast<int32_t>(largest);
  if (out.vocabulary > 0) {
    const bool ok = largest < static_cast<uint32_t>(out.vocabulary);
    add_check(out, "ids", ok,
              ok ? fmt::format("All ids are below the vocabulary of {}.", out.vocabulary)
                 : fmt::format("The id {} is outside the vocabulary of {}.",
                               static_cast<int32_t>(largest), out.vocabulary));
  }
  if (out.meta) {
    const std::string_view bytes = corpus.bin_bytes();
    const std::string hash = hash_hex(hash_bytes(bytes.data(), bytes.size()));
    const bool ok = hash == out.meta->bin_xxh3;
    add_check(out, "content", ok,
              ok ? "The tokens are the recorded ones (XXH3 " + hash + ")."
                 : "The tokens changed since they were prepared: XXH3 is " + hash +
                       ", recorded is " + out.meta->bin_xxh3 + ".");
  }
}

}  // namespace

CorpusInspection inspect_corpus(FileSystem& files, const std::string& prefix,
                                const InspectOptions& options) {
  CorpusOptions how;
  how.checksums = false;  // all damage is reported, not only the first
  how.on_demand = !options.verify;
  const Corpus corpus(files, prefix, how);
  CorpusInspection out;
  out.prefix = prefix;
  out.dtype = corpus.dtype();
  out.documents = corpus.documents();
  out.sequences = corpus.sequences();
  out.tokens = corpus.tokens();
  out.bin_bytes = corpus.bin_size_bytes();
  out.idx_bytes = files.size_bytes(corpus_paths(prefix).idx);
  measure_documents(corpus, out);
  add_check(
      out, "index", true,
      fmt::format("{} sequences in {} documents cover all of .bin.", out.sequences, out.documents));
  const auto tokenizer = inspect_tokenizer(files, out);
  inspect_meta(files, out);
  inspect_mask(files, corpus, out);
  inspect_checksums(files, corpus, options.verify, out);
  if (options.sequence > 0) out.packing = inspect_packing(corpus, options.sequence);
  if (options.verify) {
    try {
      verify_content(corpus, out);
    } catch (const Error& error) {
      add_check(out, "ids", false, error.what());
    }
  }

  if (options.sample_first < 0 || options.sample_first >= out.tokens) {
    fail(ErrorKind::usage, "the sample starts at token {}; corpus '{}' has tokens 0 to {}",
         options.sample_first, prefix, out.tokens - 1);
  }
  const int64_t count =
      std::clamp<int64_t>(options.sample_tokens, 0, out.tokens - options.sample_first);
  out.sample_ids.resize(static_cast<size_t>(count));
  try {
    corpus.read(options.sample_first, count, out.sample_ids.data());
    if (tokenizer) out.sample_text = tokenizer->decode(out.sample_ids);
  } catch (const Error& error) {
    add_check(out, "sample", false, error.what());
  }
  return out;
}

}  // namespace tutti::data
