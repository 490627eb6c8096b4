// What the tests of `prepare` share: options, texts, and what a corpus holds.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/prepare/prepare.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

inline std::string gzip(std::string_view text) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

inline std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Text without zero bytes that does not repeat; every character is ASCII.
inline std::string random_text(size_t size, uint64_t key) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('!' + random_u64(key, i) % 90);
  return text;
}

inline std::string decoded(FileSystem& files, const std::string& prefix, int64_t document) {
  const Corpus corpus(files, prefix);
  const auto [first, count] = corpus.document_range(document);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  corpus.read(first, count, ids.data());
  return load_tokenizer(files, prefix)->decode(ids);
}

inline std::vector<std::string> all_documents(FileSystem& files, const std::string& prefix) {
  std::vector<std::string> texts;
  for (int64_t d = 0; d < Corpus(files, prefix).documents(); ++d) {
    texts.push_back(decoded(files, prefix, d));
  }
  return texts;
}

inline PrepareOptions options_for(const std::vector<std::string>& sources) {
  PrepareOptions options;
  options.sources = sources;
  options.prefix = "out/c";
  return options;
}

inline std::string preparing(FileSystem& files, ErrorKind kind, const PrepareOptions& options) {
  std::string message = error_of(kind, [&] { prepare(files, options); });
  EXPECT_FALSE(corpus_exists(files, options.prefix));
  if (files.is_directory("out")) {
    EXPECT_TRUE(files.list("out").empty()) << files.list("out")[0].name;
  }
  return message;
}

}  // namespace tutti::data
