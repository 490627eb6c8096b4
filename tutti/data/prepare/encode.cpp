#include "tutti/data/prepare/encode.h"

#include <algorithm>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/rng.h"
#include "tutti/data/corpus/writer.h"
#include "tutti/data/prepare/document_reader.h"
#include "tutti/data/prepare/ordered_work.h"

namespace tutti::data {
namespace {

constexpr int64_t kBudgetBytes = int64_t{64} << 20;  // of encoded blocks that wait to be written
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr size_t kEncodeStep = size_t{64} << 10;  // text whose ids stay in cache

// Runs `action`, whose errors about the text shall name the file.
template <typename Action>
void naming(const std::string& path, const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    fail(error.kind(), "'{}': {}", path, error.what());
  }
}

class EncodingSink final : public DocumentSink {
 public:
  using Emit = OrderedWork<EncodedBlock>::Emit;

  EncodingSink(const std::vector<SourceFile>& files, const Tokenizer& tokenizer, DType dtype,
               const Holdout& holdout, const std::vector<bool>& held_out_files,
               const std::vector<int32_t>& guarded, const Emit& emit)
      : files_(files),
        tokenizer_(tokenizer),
        dtype_(dtype),
        holdout_(holdout),
        held_out_files_(held_out_files),
        guarded_(guarded),
        emit_(emit) {}

  void text(size_t file, std::string_view piece, bool first, bool last) override {
    add(file, held_out_files_[file], piece, first, last);
  }
  void document(size_t file, std::string_view text, size_t prompt_bytes) override {
    const bool held_out = holdout_.holds_out(text);
    // Apart, so that no token is half prompt.
    if (prompt_bytes > 0) add(file, held_out, text.substr(0, prompt_bytes), true, false, true);
    add(file, held_out, text.substr(prompt_bytes), prompt_bytes == 0, true);
  }
  void conversation(size_t file, const WrittenConversation& document) override {
    const bool held_out = holdout_.holds_out(document.text.bytes);
    size_t done = 0;
    const auto add_up_to = [&](size_t end, bool prompt) {
      const bool last = end == document.text.size();
      if (end > done || last) add_chat(file, held_out, document.text, {done, end}, prompt, last);
      done = end;
    };
    for (const chat::ByteRange& answer : document.answers) {
      // Apart, so that no token is half prompt.
      if (answer.begin > done) add_up_to(answer.begin, true);
      add_up_to(answer.end, false);
    }
    if (done < document.text.size()) add_up_to(document.text.size(), true);
  }
  void hashed(size_t file, uint64_t hash) override { block_.hashes.emplace_back(file, hash); }
  void skip(size_t file, const char* reason) override { block_.skipped.emplace_back(file, reason); }
  void advance(int64_t bytes) override { block_.source_bytes += bytes; }

  void flush() {
    const auto bytes = static_cast<int64_t>(block_.packed.size());
    emit_(std::move(block_), bytes);
    block_ = {};
  }

 private:
  void add(size_t file, bool held_out, std::string_view text, bool first, bool last,
           bool prompt = false) {
    EncodedSegment segment{file, held_out, last, 0, prompt};
    block_.text_bytes[held_out ? 1 : 0] += static_cast<int64_t>(text.size());
    if (first && !text.empty()) {
      for (const int32_t id : tokenizer_.begin_of_document()) put(id, segment);
    }
    while (!text.empty()) {
      size_t step = text.size() <= kEncodeStep ? text.size() : tokenizer_.cut(text, kEncodeStep);
      if (step == 0) step = text.size();
      ids_.clear();
      naming(files_[file].path, [&] {
        if (first) {
          tokenizer_.encode(text.substr(0, step), ids_);
        } else {
          tokenizer_.encode_rest(text.substr(0, step), ids_);
        }
      });
      first = false;
      text.remove_prefix(step);
      pack(segment);
    }
    if (last) put(tokenizer_.end_of_document(), segment);
    block_.segments.push_back(segment);
    if (block_.packed.size() >= kBlockBytes) flush();
  }

  void add_chat(size_t file, bool held_out, const chat::Text& text, chat::ByteRange range,
                bool prompt, bool last) {
    EncodedSegment segment{file, held_out, last, 0, prompt};
    const size_t bytes = range.end - range.begin;
    block_.text_bytes[held_out ? 1 : 0] += static_cast<int64_t>(bytes);
    ids_.clear();
    naming(files_[file].path, [&] {
      tokenizer_.encode_chat(std::string_view(text.bytes).substr(range.begin, bytes),
                             std::string_view(text.origins).substr(range.begin, bytes), guarded_,
                             range.begin > 0, ids_);
    });
    pack(segment);
    block_.segments.push_back(segment);
    if (block_.packed.size() >= kBlockBytes) flush();
  }

  void put(int32_t id, EncodedSegment& segment) {
    if (id == kNoToken) return;
    ids_.assign(1, id);
    pack(segment);
  }

  void pack(EncodedSegment& segment) {
    pack_tokens(ids_, dtype_, block_.packed);
    segment.tokens += static_cast<int64_t>(ids_.size());
  }

  const std::vector<SourceFile>& files_;
  const Tokenizer& tokenizer_;
  const DType dtype_;
  const Holdout& holdout_;
  const std::vector<bool>& held_out_files_;
  const std::vector<int32_t>& guarded_;  // tokens that only a chat template may write
  const Emit& emit_;
  EncodedBlock block_;
  std::vector<int32_t> ids_;
};

struct VocabularyBlock {
  std::unique_ptr<Vocabulary> found;
  int64_t source_bytes = 0;
};

class VocabularySink final : public DocumentSink {
 public:
  VocabularySink(const std::vector<SourceFile>& files, VocabularyBlock& block)
      : files_(files), block_(block) {}

  void text(size_t file, std::string_view piece, bool /*first*/, bool last) override {
    naming(files_[file].path, [&] { block_.found->characters.add(piece); });
    block_.found->documents += last ? 1 : 0;
  }
  void document(size_t file, std::string_view text, size_t /*prompt_bytes*/) override {
    this->text(file, text, true, true);
  }
  void conversation(size_t file, const WrittenConversation& document) override {
    this->text(file, document.text.bytes, true, true);
  }
  void skip(size_t /*file*/, const char* /*reason*/) override {}
  void advance(int64_t bytes) override { block_.source_bytes += bytes; }

 private:
  const std::vector<SourceFile>& files_;
  VocabularyBlock& block_;
};

}  // namespace

Holdout::Holdout(double share, uint64_t seed) : share_(share), key_(stream_key(seed, "holdout")) {}

double Holdout::draw(std::string_view name) const { return random_uniform(key_, hash_text(name)); }

std::vector<bool> Holdout::choose(const std::vector<SourceFile>& files) const {
  std::vector<bool> chosen(files.size(), false);
  if (share_ <= 0) return chosen;
  size_t least = files.size();
  bool any = false;
  for (size_t i = 0; i < files.size(); ++i) {
    if (files[i].content != Content::text) continue;
    chosen[i] = holds_out(files[i].name);
    any = any || chosen[i];
    if (least == files.size() || draw(files[i].name) < draw(files[least].name)) least = i;
  }
  if (!any && least < files.size()) chosen[least] = true;
  return chosen;
}

void encode_documents(const EncodeJob& job, const Tokenizer& tokenizer, DType dtype,
                      const Holdout& holdout, const std::function<void(EncodedBlock&)>& consume) {
  const std::vector<ReadTask> tasks = make_read_tasks(job.files);
  const std::vector<bool> held_out_files = holdout.choose(job.files);
  const ReadOptions options{
      job.json_key, job.exchange,
      [&](std::string_view text, size_t position) { return tokenizer.cut(text, position); },
      /*hash_files=*/true, job.conversations};
  const std::vector<int32_t> guarded =
      job.conversations == nullptr ? std::vector<int32_t>()
                                   : tokenizer.spelled_tokens(job.conversations->literals());
  ordered_work<EncodedBlock>(
      static_cast<int64_t>(tasks.size()), job.threads, kBudgetBytes,
      [&](int64_t task, const EncodingSink::Emit& emit) {
        EncodingSink sink(job.files, tokenizer, dtype, holdout, held_out_files, guarded, emit);
        read_task(job.file_system, job.files, tasks[static_cast<size_t>(task)], options, sink);
        sink.flush();
      },
      consume);
}

Vocabulary collect_vocabulary(const EncodeJob& job,
                              const std::function<void(int64_t bytes)>& progress) {
  const std::vector<ReadTask> tasks = make_read_tasks(job.files);
  const ReadOptions options{job.json_key, job.exchange, utf8_cut, /*hash_files=*/false,
                            job.conversations};
  Vocabulary all;
  ordered_work<VocabularyBlock>(
      static_cast<int64_t>(tasks.size()), job.threads, kBudgetBytes,
      [&](int64_t task, const OrderedWork<VocabularyBlock>::Emit& emit) {
        VocabularyBlock block{std::make_unique<Vocabulary>()};
        VocabularySink sink(job.files, block);
        read_task(job.file_system, job.files, tasks[static_cast<size_t>(task)], options, sink);
        emit(std::move(block), static_cast<int64_t>(sizeof(CharacterSet)));
      },
      [&](VocabularyBlock& block) {
        all.characters.merge(block.found->characters);
        all.documents += block.found->documents;
        progress(block.source_bytes);
      });
  return all;
}

}  // namespace tutti::data
