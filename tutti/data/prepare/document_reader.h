// Reads the documents of source files, in pieces small enough to share among threads.
//
// A task is a list of byte ranges of files, about kTaskBytes together; a compressed file is one
// range. Reading the tasks in order gives all documents in order; how they are cut into tasks never
// shows in the result. A range of a text file is moved to positions where the text may be cut; a
// range of JSON lines holds the lines that start in it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/prepare/conversation.h"
#include "tutti/data/prepare/exchange.h"
#include "tutti/data/prepare/sources.h"

namespace tutti::data {

inline constexpr int64_t kTaskBytes = int64_t{1} << 20;

struct FileRange {
  size_t file = 0;  // index of the source file
  int64_t begin = 0, end = 0;
};
using ReadTask = std::vector<FileRange>;
std::vector<ReadTask> make_read_tasks(const std::vector<SourceFile>& files,
                                      int64_t task_bytes = kTaskBytes);

class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  // A piece of a text file, which is one document; `first` when it starts there; `last` ends it,
  // with or without bytes. Of a document that is not empty, one piece with bytes is the first.
  virtual void text(size_t file, std::string_view piece, bool first, bool last) = 0;
  // A whole document of a JSON-lines file, whose first `prompt_bytes` are not trained on.
  virtual void document(size_t file, std::string_view text, size_t prompt_bytes) = 0;
  // A whole document that a chat template wrote, where ReadOptions has one.
  virtual void conversation(size_t /*file*/, const WrittenConversation& /*document*/) {}
  // A file, or a document of one, was passed over.
  virtual void skip(size_t file, const char* reason) = 0;
  // The XXH3 of a file, as stored, whose last range was read; where asked for.
  virtual void hashed(size_t /*file*/, uint64_t /*hash*/) {}
  // So many more bytes of the sources, as stored, are done.
  virtual void advance(int64_t bytes) = 0;
};

struct ReadOptions {
  std::string json_key = "text";
  ExchangeKeys exchange = {};  // instead of it, where given
  // As Tokenizer::cut.
  std::function<size_t(std::string_view text, size_t position)> cut;
  bool hash_files = false;
  const ConversationWriter* conversations = nullptr;  // instead of all keys, where given
};

// Throws the errors that prepare.h lists; whatever `sink` throws passes through.
void read_task(FileSystem& file_system, const std::vector<SourceFile>& files, const ReadTask& task,
               const ReadOptions& options, DocumentSink& sink);

}  // namespace tutti::data
