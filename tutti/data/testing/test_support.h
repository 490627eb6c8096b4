// Small things that several tests of this folder need.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/data/corpus/writer.h"

namespace tutti::data {

// The message of the Error that `action` throws, which must be of `kind`.
inline std::string error_of(ErrorKind kind, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error_kind_name(error.kind()), error_kind_name(kind)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline void write_text(FileSystem& files, const std::string& path, std::string_view text) {
  files.create_directories(parent_path(path));
  const auto file = files.create(path);
  file->append(text.data(), text.size());
  file->close();
}

inline void write_corpus(FileSystem& files, const std::string& prefix,
                         const std::vector<std::vector<int32_t>>& documents,
                         DType dtype = DType::u16) {
  CorpusWriter writer(files, prefix, dtype);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
  writer.commit();
}

// 0, 1, 2, ... below `count`, as one document: token i is i.
inline void write_counting_corpus(FileSystem& files, const std::string& prefix, int32_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) tokens[static_cast<size_t>(i)] = i;
  write_corpus(files, prefix, {tokens}, DType::i32);
}

}  // namespace tutti::data
