#include "tutti/mlperf/log.h"

#include <algorithm>
#include <memory>

namespace tutti::mlperf {
namespace {

constexpr size_t kWindowBytes = size_t{8} << 20U;  // pages given back after this much

class LineReader {
 public:
  explicit LineReader(const LogVisitor& visitor) : visitor_(visitor) {}

  // A line without its newline. Carriage returns separate lines of the same number.
  void line(std::string_view text) {
    ++size_.lines;
    while (!stopped_) {
      const size_t end = text.find('\r');
      part(text.substr(0, end));
      if (end == std::string_view::npos) return;
      text.remove_prefix(end + 1);
    }
  }

  LogSize size() const { return size_; }
  bool stopped() const { return stopped_; }

 private:
  void part(std::string_view text) {
    const size_t prefix = text.rfind(kRecordPrefix);
    if (prefix == std::string_view::npos) return;
    Record record;
    record.line = size_.lines;
    const std::string wrong = parse_record(text.substr(prefix + kRecordPrefix.size()), record);
    if (wrong.empty()) {
      ++size_.records;
      if (visitor_.record) stopped_ = !visitor_.record(record);
    } else {
      ++size_.problems;
      if (visitor_.problem) visitor_.problem({size_.lines, wrong});
    }
  }

  const LogVisitor& visitor_;
  LogSize size_;
  bool stopped_ = false;
};

LogSize read_lines(std::string_view text, const LogVisitor& visitor,
                   const std::function<void(size_t)>& done_until) {
  LineReader reader(visitor);
  size_t begin = 0;
  while (begin < text.size() && !reader.stopped()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    reader.line(text.substr(begin, end - begin));
    begin = end + 1;
    if (done_until) done_until(begin);
  }
  LogSize size = reader.size();
  size.cut = !text.empty() && text.back() != '\n';
  return size;
}

}  // namespace

LogSize read_log_text(std::string_view text, const LogVisitor& visitor) {
  return read_lines(text, visitor, {});
}

LogSize read_log(FileSystem& files, const std::string& path, const LogVisitor& visitor) {
  const std::unique_ptr<MappedFile> file = files.map(path);
  size_t released = 0;
  return read_lines(file->bytes(), visitor, [&](size_t position) {
    if (position < released + kWindowBytes) return;
    file->not_needed(released, position - released);
    released = position;
  });
}

}  // namespace tutti::mlperf
