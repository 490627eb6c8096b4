#include "tutti/data/corpus/writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/object_store.h"

namespace tutti::data {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Of a process that was killed while it wrote this corpus: they are invisible, and cost space. A
// store that does not list them keeps no corpus from being written.
void end_old_uploads(ObjectStore& store, const CorpusPaths& paths) {
  try {
    for (const std::string& path : {paths.bin, paths.idx, paths.checksums}) {
      store.end_uploads_of(path);
    }
  } catch (const Error&) {
    // What is wrong with the store is said when something is written.
  }
}

void remove_quietly(FileSystem& files, const std::string& path) {
  try {
    if (files.exists(path)) files.remove_file(path);
  } catch (const Error&) {  // it is only a temporary file; the first error matters more
  }
}

}  // namespace

void pack_tokens(std::span<const int32_t> tokens, DType dtype, std::vector<char>& out) {
  const size_t start = out.size();
  uint32_t seen = 0;
  for (const int32_t token : tokens) seen |= static_cast<uint32_t>(token);
  if (dtype == DType::u16) {
    TUTTI_CHECK(seen <= 0xffff, "a token id does not fit u16");
    out.resize(start + tokens.size() * sizeof(uint16_t));
    char* next = out.data() + start;
    for (const int32_t token : tokens) {
      const auto narrow = static_cast<uint16_t>(token);
      std::memcpy(next, &narrow, sizeof narrow);
      next += sizeof narrow;
    }
  } else {
    TUTTI_CHECK(dtype == DType::i32, "tokens are stored as u16 or i32, not {}", dtype_name(dtype));
    TUTTI_CHECK(seen <= 0x7fffffff, "a token id is negative");
    const auto* bytes = reinterpret_cast<const char*>(tokens.data());
    out.insert(out.end(), bytes, bytes + tokens.size_bytes());
  }
}

CorpusWriter::CorpusWriter(FileSystem& files, const std::string& prefix, DType dtype,
                           int64_t max_sequence_tokens, bool durable)
    : files_(files),
      paths_(corpus_paths(prefix)),
      bin_temporary_(paths_.bin + ".tmp"),
      idx_temporary_(paths_.idx + ".tmp"),
      checksums_temporary_(paths_.checksums + ".tmp"),
      dtype_(dtype),
      max_sequence_tokens_(max_sequence_tokens),
      durable_(durable),
      in_store_(object_store(files, prefix) != nullptr) {
  if (in_store_) {
    bin_temporary_ = paths_.bin;
    idx_temporary_ = paths_.idx;
    checksums_temporary_ = paths_.checksums;
    end_old_uploads(*object_store(files, prefix), paths_);
  }
  bin_ = files.create(bin_temporary_);
  TUTTI_CHECK(dtype == DType::u16 || dtype == DType::i32, "tokens are stored as u16 or i32, not {}",
              dtype_name(dtype));
  TUTTI_CHECK(max_sequence_tokens >= 1 && max_sequence_tokens <= kMaxSequenceTokens,
              "max_sequence_tokens is {}", max_sequence_tokens);
  buffer_.reserve(kBufferBytes);
}

CorpusWriter::~CorpusWriter() {
  if (committed_ || in_store_) return;  // what is not closed does not appear, and ends its upload
  bin_.reset();
  remove_quietly(files_, bin_temporary_);
  remove_quietly(files_, idx_temporary_);
  remove_quietly(files_, checksums_temporary_);
}

void CorpusWriter::append(std::span<const int32_t> tokens) {
  packed_.clear();
  pack_tokens(tokens, dtype_, packed_);
  append_packed(packed_.data(), static_cast<int64_t>(tokens.size()));
}

void CorpusWriter::append_packed(const void* data, int64_t tokens) {
  TUTTI_CHECK(!finished_, "append after finish: {}", paths_.bin);
  document_open_ = true;
  const auto bytes = static_cast<size_t>(tokens * dtype_bytes(dtype_));
  hasher_.update(data, bytes);
  if (durable_) checksums_.update(data, bytes);
  if (bytes >= kBufferBytes) {
    flush();
    bin_->append(data, bytes);
  } else {
    if (buffer_.size() + bytes > kBufferBytes) flush();
    const auto* first = static_cast<const char*>(data);
    buffer_.insert(buffer_.end(), first, first + bytes);
  }
  summary_.tokens += tokens;
  while (tokens > max_sequence_tokens_ - open_tokens_) {
    tokens -= max_sequence_tokens_ - open_tokens_;
    lengths_.push_back(static_cast<int32_t>(max_sequence_tokens_));
    open_tokens_ = 0;
  }
  open_tokens_ += tokens;
}

void CorpusWriter::end_document() {
  lengths_.push_back(static_cast<int32_t>(open_tokens_));
  documents_.push_back(static_cast<int64_t>(lengths_.size()));
  open_tokens_ = 0;
  document_open_ = false;
}

void CorpusWriter::flush() {
  if (buffer_.empty()) return;
  bin_->append(buffer_.data(), buffer_.size());
  buffer_.clear();
}

CorpusSummary CorpusWriter::finish() {
  if (document_open_) end_document();
  flush();
  if (durable_) bin_->sync();
  if (!in_store_) bin_->close();
  write_index();
  finished_ = true;
  summary_.documents = static_cast<int64_t>(documents_.size()) - 1;
  summary_.sequences = static_cast<int64_t>(lengths_.size());
  summary_.bin_bytes = summary_.tokens * dtype_bytes(dtype_);
  summary_.content_hash = hash_hex(hasher_.digest());
  return summary_;
}

void CorpusWriter::write_index() {
  idx_ = files_.create(idx_temporary_);
  Hasher hasher;
  int64_t idx_bytes = 0;
  const auto emit = [&](const void* data, size_t bytes) {
    idx_->append(data, bytes);
    hasher.update(data, bytes);
    idx_bytes += static_cast<int64_t>(bytes);
  };
  std::string out(kIndexMagic, sizeof kIndexMagic);
  put(out, kIndexVersion);
  put(out, index_dtype_code(dtype_));
  put(out, static_cast<uint64_t>(lengths_.size()));
  put(out, static_cast<uint64_t>(documents_.size()));
  emit(out.data(), out.size());
  emit(lengths_.data(), lengths_.size() * sizeof lengths_[0]);
  out.clear();
  int64_t offset = 0;
  for (const int32_t length : lengths_) {
    put(out, offset);
    offset += length * dtype_bytes(dtype_);
    if (out.size() >= kBufferBytes) {
      emit(out.data(), out.size());
      out.clear();
    }
  }
  emit(out.data(), out.size());
  emit(documents_.data(), documents_.size() * sizeof documents_[0]);
  if (durable_) idx_->sync();
  if (!in_store_) idx_->close();
  if (durable_) write_checksums(idx_bytes, hasher.digest());
}

void CorpusWriter::write_checksums(int64_t idx_bytes, uint64_t idx_xxh3) {
  const std::string bytes = checksums_.finish(idx_bytes, idx_xxh3);
  checksums_file_ = files_.create(checksums_temporary_);
  checksums_file_->append(bytes.data(), bytes.size());
  checksums_file_->sync();
  if (!in_store_) checksums_file_->close();
}

void CorpusWriter::commit() {
  TUTTI_CHECK(finished_ && !committed_, "commit of {} follows finish, once", paths_.bin);
  if (in_store_) {
    if (checksums_file_) checksums_file_->close();
    bin_->close();
    idx_->close();  // last, as below
    committed_ = true;
    return;
  }
  // Before the index, without which there is no corpus: no reader sees those of another one.
  if (durable_) {
    files_.rename(checksums_temporary_, paths_.checksums);
  } else {
    remove_quietly(files_, paths_.checksums);
  }
  files_.rename(bin_temporary_, paths_.bin);
  if (durable_) files_.sync_directory(parent_path(paths_.bin));
  files_.rename(idx_temporary_, paths_.idx);
  if (durable_) files_.sync_directory(parent_path(paths_.idx));
  committed_ = true;
}

}  // namespace tutti::data
