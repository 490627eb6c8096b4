#include "tutti/data/prepare/document_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/json.h"
#include "tutti/base/repeated_key.h"
#include "tutti/base/text.h"
#include "tutti/data/prepare/byte_stream.h"

namespace tutti::data {
namespace {

constexpr size_t kBinaryProbe = 8192;
constexpr size_t kStreamBytes = size_t{1} << 20;

bool looks_binary(std::string_view start) {
  start = start.substr(0, kBinaryProbe);
  return std::memchr(start.data(), '\0', start.size()) != nullptr;
}

// Passes over `file`, or fails when it was asked for by name.
void skip_or_fail(const SourceFile& file, size_t index, const char* reason, DocumentSink& sink) {
  if (file.named_directly) {
    fail(ErrorKind::usage, "'{}' is {}: no text to prepare{}", file.path, reason,
         std::string_view(reason) == "binary" ? " (a zero byte is among its first 8 KiB)" : "");
  }
  sink.skip(index, reason);
}

// One line of JSON lines. `line_number` is called for errors only.
template <typename LineNumber>
void read_line(const SourceFile& file, size_t index, const ReadOptions& options,
               std::string_view line, const LineNumber& line_number, DocumentSink& sink) {
  line = trim(line);
  if (line.empty()) return;
  std::optional<std::string> repeated;
  const Json value = parse_json(line, repeated);
  if (value.is_discarded()) {
    const std::string origin = fmt::format("{}:{}", file.path, line_number());
    parse_json(line, origin);
  }
  // Which of the two is the text, readers of JSON disagree about.
  if (repeated) {
    fail(ErrorKind::corrupt, "{}:{}: the key '{}' is given twice in one object; keep one of them",
         file.path, line_number(), printable(*repeated));
  }
  const auto where = [&] { return fmt::format("{}:{}", file.path, line_number()); };
  if (options.conversations != nullptr) {
    return sink.conversation(index, options.conversations->write(value, where));
  }
  if (options.exchange.any()) {
    const Exchange exchange = read_exchange(value, options.exchange, where);
    if (exchange.completion.empty()) return sink.skip(index, "empty document");
    return sink.document(index, exchange.prompt + exchange.completion, exchange.prompt.size());
  }
  const std::string& key = file.json_key.empty() ? options.json_key : file.json_key;
  const auto found = value.is_object() ? value.find(key) : value.end();
  if (!value.is_object() || found == value.end() || !found->is_string()) {
    std::vector<std::string> keys;
    if (value.is_object()) {
      for (const auto& item : value.items()) keys.push_back("'" + item.key() + "'");
    }
    fail(ErrorKind::corrupt,
         "{}:{}: each line is an object with the text under the key '{}'; this "
         "one is {}",
         file.path, line_number(), key,
         !value.is_object() ? std::string("of type ") + value.type_name()
         : found != value.end()
             ? std::string("an object whose '") + key + "' is of type " + found->type_name()
         : keys.empty() ? std::string("an empty object")
                        : "an object with the keys " + join(keys, ", "));
  }
  const auto& text = found->get_ref<const std::string&>();
  if (text.empty()) {
    sink.skip(index, "empty document");
  } else {
    sink.document(index, text, 0);
  }
}

void read_text_range(const SourceFile& file, const FileRange& range, std::string_view bytes,
                     const ReadOptions& options, DocumentSink& sink) {
  const size_t begin = range.begin == 0 ? 0 : options.cut(bytes, static_cast<size_t>(range.begin));
  const bool last = range.end == file.size_bytes;
  const size_t end = last ? bytes.size() : options.cut(bytes, static_cast<size_t>(range.end));
  sink.text(range.file, bytes.substr(begin, end - begin), begin == 0, last);
}

void read_lines_range(const SourceFile& file, const FileRange& range, std::string_view bytes,
                      const ReadOptions& options, DocumentSink& sink) {
  auto at = static_cast<size_t>(range.begin);
  if (at > 0) {  // the line that runs across the start belongs to the range before
    const size_t end_of_line = bytes.find('\n', at - 1);
    at = end_of_line == std::string_view::npos ? bytes.size() : end_of_line + 1;
  }
  while (at < static_cast<size_t>(range.end)) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const auto line_number = [&] {
      return 1 + std::count(bytes.begin(), bytes.begin() + at, '\n');
    };
    read_line(file, range.file, options, bytes.substr(at, end - at), line_number, sink);
    at = end + 1;
  }
}

// Decompresses a file into pieces; what a piece leaves unfinished is put in front of the next.
// False when the file was passed over.
bool read_compressed(const SourceFile& file, size_t index, std::string_view compressed,
                     const ReadOptions& options, DocumentSink& sink) {
  const auto stream = open_compressed(compressed, file.compression, file.path);
  std::string buffer;
  int64_t advanced = 0;
  int64_t lines = 0;
  bool first = true;  // nothing was read yet
  bool start = true;  // nothing was handed on yet
  for (;;) {
    size_t filled = buffer.size();
    buffer.resize(filled + kStreamBytes);
    size_t got = 1;
    while (filled < buffer.size() && got > 0) {
      got = stream->read(buffer.data() + filled, buffer.size() - filled);
      filled += got;
    }
    buffer.resize(filled);
    const bool last = got == 0;
    if (first && (buffer.empty() || looks_binary(buffer))) {
      skip_or_fail(file, index, buffer.empty() ? "empty" : "binary", sink);
      sink.advance(file.size_bytes);
      return false;
    }
    first = false;
    const std::string_view bytes = buffer;
    size_t done = 0;
    if (file.content == Content::text) {
      done = last ? bytes.size() : options.cut(bytes, bytes.size() - 1);
      sink.text(index, bytes.substr(0, done), start, last);
      start = start && done == 0;
    } else {
      while (done < bytes.size()) {
        size_t end = bytes.find('\n', done);
        if (end == std::string_view::npos && !last) break;
        end = std::min(end, bytes.size());
        ++lines;
        read_line(
            file, index, options, bytes.substr(done, end - done), [&] { return lines; }, sink);
        done = std::min(end + 1, bytes.size());
      }
    }
    buffer.erase(0, done);
    sink.advance(stream->consumed() - advanced);
    advanced = stream->consumed();
    if (last) break;
  }
  sink.advance(file.size_bytes - advanced);
  return true;
}

void read_range(FileSystem& file_system, const SourceFile& file, const FileRange& range,
                const ReadOptions& options, DocumentSink& sink) {
  std::unique_ptr<MappedFile> mapped;
  try {
    mapped = file_system.map(file.path);
  } catch (const Error& error) {
    const bool may_skip = error.kind() == ErrorKind::permission ||
                          (error.kind() == ErrorKind::not_found && range.begin == 0);
    if (file.named_directly || !may_skip) throw;
    if (range.begin == 0) sink.skip(range.file, "unreadable");
    sink.advance(range.end - range.begin);
    return;
  }
  const std::string_view bytes = mapped->bytes();
  if (static_cast<int64_t>(bytes.size()) != file.size_bytes) {
    fail(ErrorKind::io, "'{}' changed while it was read ({} bytes, then {}); try again", file.path,
         file.size_bytes, bytes.size());
  }
  const auto hash_if_asked = [&] {
    if (options.hash_files && range.end == file.size_bytes) {
      sink.hashed(range.file, hash_bytes(bytes.data(), bytes.size()));
    }
  };
  if (file.compression != Compression::none) {
    if (read_compressed(file, range.file, bytes, options, sink)) hash_if_asked();
    return;
  }
  if (looks_binary(bytes)) {
    if (range.begin == 0) skip_or_fail(file, range.file, "binary", sink);
    sink.advance(range.end - range.begin);
    return;
  }
  if (file.content == Content::text) {
    read_text_range(file, range, bytes, options, sink);
  } else {
    read_lines_range(file, range, bytes, options, sink);
  }
  hash_if_asked();
  sink.advance(range.end - range.begin);
}

}  // namespace

std::vector<ReadTask> make_read_tasks(const std::vector<SourceFile>& files, int64_t task_bytes) {
  std::vector<ReadTask> tasks;
  int64_t in_task = task_bytes;
  const auto add = [&](const FileRange& range) {
    const int64_t bytes = range.end - range.begin;
    if (in_task + bytes > task_bytes) {
      tasks.emplace_back();
      in_task = 0;
    }
    tasks.back().push_back(range);
    in_task += bytes;
  };
  for (size_t i = 0; i < files.size(); ++i) {
    const int64_t size = files[i].size_bytes;
    if (files[i].compression != Compression::none) {
      add({i, 0, size});
      continue;
    }
    for (int64_t begin = 0; begin < size; begin += task_bytes) {
      add({i, begin, std::min(begin + task_bytes, size)});
    }
  }
  return tasks;
}

void read_task(FileSystem& file_system, const std::vector<SourceFile>& files, const ReadTask& task,
               const ReadOptions& options, DocumentSink& sink) {
  for (const FileRange& range : task) {
    read_range(file_system, files[range.file], range, options, sink);
  }
}

}  // namespace tutti::data
