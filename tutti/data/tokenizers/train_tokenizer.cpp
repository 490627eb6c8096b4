#include "tutti/data/tokenizers/train_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/rng.h"
#include "tutti/base/text.h"
#include "tutti/data/prepare/document_reader.h"
#include "tutti/data/prepare/ordered_work.h"
#include "tutti/data/tokenizers/char_tokenizer.h"

namespace tutti::data {
namespace {

constexpr size_t kLineBytes = 4096;  // the library passes over longer ones
constexpr int64_t kTrainBudgetBytes = int64_t{64} << 20;
constexpr int64_t kTrainBlockBytes = int64_t{1} << 20;
constexpr int64_t kLeastVocabulary = 260;  // three control tokens, 256 bytes and one more

struct LineBlock {
  std::vector<std::string> lines;
  int64_t source_bytes = 0;
};

class LineSink final : public DocumentSink {
 public:
  using Emit = OrderedWork<LineBlock>::Emit;

  explicit LineSink(const Emit& emit) : emit_(emit) {}
  void text(size_t /*file*/, std::string_view piece, bool /*first*/, bool /*last*/) override {
    while (!piece.empty()) {
      const size_t end = std::min(piece.find('\n'), piece.size());
      for (std::string_view line = piece.substr(0, end); !line.empty();) {
        const size_t size = std::max<size_t>(1, utf8_cut(line, kLineBytes));
        block_.lines.emplace_back(line.substr(0, size));
        bytes_ += static_cast<int64_t>(size);
        line.remove_prefix(size);
      }
      piece.remove_prefix(std::min(end + 1, piece.size()));
      if (bytes_ >= kTrainBlockBytes) flush();
    }
  }
  void document(size_t file, std::string_view text, size_t /*prompt_bytes*/) override {
    this->text(file, text, true, true);
  }
  void skip(size_t /*file*/, const char* /*reason*/) override {}
  void advance(int64_t bytes) override { block_.source_bytes += bytes; }

  void flush() {
    emit_(std::move(block_), std::exchange(bytes_, 0));
    block_ = {};
  }

 private:
  const Emit& emit_;
  LineBlock block_;
  int64_t bytes_ = 0;  // of its lines
};

// Lines of at most `most_bytes` together, evenly over all that are added: those whose draw is below
// a share, which falls when they become too many. (How much text compressed sources hold is not
// known before.)
class LineSample {
 public:
  LineSample(uint64_t key, int64_t most_bytes, double share)
      : key_(key), most_bytes_(most_bytes), share_(share) {}

  void add(std::string line) {
    const double draw = random_uniform(key_, sample_++);
    if (draw >= share_) return;
    bytes_ += static_cast<int64_t>(line.size());
    lines_.push_back(std::move(line));
    draws_.push_back(draw);
    while (bytes_ > most_bytes_ && lines_.size() > 1) thin_out();
  }
  const std::vector<std::string>& lines() const { return lines_; }
  int64_t bytes() const { return bytes_; }

 private:
  void thin_out() {
    share_ = std::min(share_, 1.0) * 0.9;
    size_t kept = 0;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (draws_[i] >= share_) {
        bytes_ -= static_cast<int64_t>(lines_[i].size());
        continue;
      }
      if (kept < i) lines_[kept] = std::move(lines_[i]);
      draws_[kept++] = draws_[i];
    }
    lines_.resize(kept);
    draws_.resize(kept);
  }

  uint64_t key_;
  int64_t most_bytes_;
  double share_;
  uint64_t sample_ = 0;
  int64_t bytes_ = 0;
  std::vector<std::string> lines_;
  std::vector<double> draws_;
};

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

// The start of a line, so that lines are whole however files are divided; in a line without end the
// start of a character.
size_t line_cut(std::string_view text, size_t position) {
  if (position >= text.size()) return text.size();
  if (position == 0) return 0;
  const size_t line_end = text.rfind('\n', position - 1);
  if (line_end != std::string_view::npos && position - line_end <= kLineBytes) return line_end + 1;
  return utf8_cut(text, position);
}

void check_options(FileSystem& files, const TrainTokenizerOptions& options) {
  if (!ends_with(options.output, ".model")) {
    fail(ErrorKind::usage, "the output '{}' is not the name of a .model", options.output);
  }
  if (!options.overwrite && files.exists(options.output)) {
    fail(ErrorKind::usage,
         "'{}' exists already; choose another name, or overwrite it (--overwrite)", options.output);
  }
  const std::vector<std::string> kinds = {"bpe", "unigram", "char"};
  if (std::find(kinds.begin(), kinds.end(), options.kind) == kinds.end()) {
    fail(ErrorKind::usage, "unknown kind '{}'; choose {}", options.kind, join(kinds, ", "));
  }
  if (options.vocabulary < kLeastVocabulary) {
    fail(ErrorKind::usage,
         "a vocabulary of {} is too small: {} control tokens and bytes come first",
         options.vocabulary, kLeastVocabulary - 1);
  }
}

}  // namespace

TrainTokenizerResult train_tokenizer(FileSystem& files, const TrainTokenizerOptions& options) {
  const double start = monotonic_seconds();
  check_options(files, options);
  std::vector<Skipped> skipped;
  const std::vector<SourceFile> sources =
      list_sources(files, options.sources, {options.include, ""}, skipped);
  TrainTokenizerResult result;
  for (const SourceFile& file : sources) result.source_bytes += file.size_bytes;

  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : cores;
  const std::vector<ReadTask> tasks = make_read_tasks(sources);
  const ReadOptions read{options.json_key, {}, line_cut};
  const uint64_t key = stream_key(options.seed, "tokenizer lines");
  const double share =
      static_cast<double>(options.sample_bytes) / static_cast<double>(result.source_bytes);
  LineSample sample(key, options.sample_bytes, share);
  int64_t done = 0;
  ordered_work<LineBlock>(
      static_cast<int64_t>(tasks.size()), threads, kTrainBudgetBytes,
      [&](int64_t task, const OrderedWork<LineBlock>::Emit& emit) {
        LineSink sink(emit);
        read_task(files, sources, tasks[static_cast<size_t>(task)], read, sink);
        sink.flush();
      },
      [&](LineBlock& block) {
        for (std::string& line : block.lines) sample.add(std::move(line));
        done += block.source_bytes;
        if (options.progress) options.progress(done, result.source_bytes);
      });
  const std::vector<std::string>& lines = sample.lines();
  result.lines = static_cast<int64_t>(lines.size());
  result.line_bytes = sample.bytes();
  if (lines.empty()) {
    fail(ErrorKind::usage, "no text in {}", join(options.sources, ", "));
  }

  Lines iterator(lines);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", options.kind},
       {"vocab_size", std::to_string(options.vocabulary)},
       {"normalization_rule_name", "identity"},
       {"remove_extra_whitespaces", "false"},
       {"allow_whitespace_only_pieces", "true"},
       {"split_digits", "true"},
       {"byte_fallback", "true"},
       {"character_coverage", "0.9995"},
       {"max_sentence_length", std::to_string(kLineBytes + 1)},
       {"minloglevel", "2"}},
      &iterator, &model);
  if (!status.ok()) {
    fail(ErrorKind::usage, "a vocabulary of {} cannot be trained on {} lines of text: {}",
         options.vocabulary, result.lines, status.ToString());
  }
  sentencepiece::SentencePieceProcessor processor;
  const auto loaded = processor.LoadFromSerializedProto(model);
  if (!loaded.ok()) fail(ErrorKind::io, "SentencePiece made no model: {}", loaded.ToString());
  result.vocabulary = processor.GetPieceSize();
  result.hash = hash_hex(hash_text(model));
  files.create_directories(parent_path(options.output));
  write_file_atomic(files, options.output, model);
  result.seconds = monotonic_seconds() - start;
  return result;
}

}  // namespace tutti::data
