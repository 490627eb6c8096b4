#include "tutti/telemetry/sinks/jsonl.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/base/text.h"

namespace tutti::telemetry {
namespace {

Event message(const std::string& text) { return {1, Message{Level::info, text}}; }

// The texts of the messages in a file; a line that is not JSON gives "?".
std::vector<std::string> texts(FileSystem& files, const std::string& path) {
  std::vector<std::string> out;
  const std::string bytes = read_file(files, path);
  EXPECT_TRUE(bytes.empty() || bytes.back() == '\n');
  for (const std::string_view line : split(bytes, '\n')) {
    if (line.empty()) continue;
    try {
      out.push_back(parse_json(line, path)["text"]);
    } catch (const Error&) {
      out.emplace_back("?");
    }
  }
  return out;
}

TEST(JsonLines, AResumedRunContinuesTheFile) {
  MemoryFileSystem files;
  {
    JsonLinesSink sink(files, "events.jsonl");
    sink.write(message("a\nb"));
    sink.write(message("c"));
  }
  JsonLinesSink sink(files, "events.jsonl");
  sink.write(message("d"));
  EXPECT_EQ(texts(files, "events.jsonl"), (std::vector<std::string>{"a\nb", "c", "d"}));
}

TEST(JsonLines, LinesTruncatedByACrashDoNotCorruptTheNext) {
  MemoryFileSystem files;
  JsonLinesSink(files, "events.jsonl").write(message("whole"));
  JsonLinesSink(files, "events.jsonl").write(message("cut"));
  files.cut("events.jsonl", files.size_bytes("events.jsonl") - 5);
  JsonLinesSink(files, "events.jsonl").write(message("after"));
  EXPECT_EQ(texts(files, "events.jsonl"), (std::vector<std::string>{"whole", "?", "after"}));
}

// What fits on a full disk is half a line: the same event can be given again.
TEST(JsonLines, LinesTruncatedByAnErrorDoNotCorruptTheNext) {
  MemoryFileSystem files;
  JsonLinesSink sink(files, "events.jsonl");
  sink.write(message("whole"));
  files.set_capacity(files.size_bytes("events.jsonl") + 9);
  EXPECT_THROW(sink.write(message("cut")), Error);
  EXPECT_THROW(sink.write(message("cut")), Error);
  files.clear_faults();
  sink.write(message("cut"));
  EXPECT_EQ(texts(files, "events.jsonl"), (std::vector<std::string>{"whole", "?", "cut"}));
}

TEST(JsonLines, EventsAreWrittenThrough) {
  MemoryFileSystem files;
  JsonLinesSink sink(files, "events.jsonl");
  files.start_record();
  sink.write(message("one"));
  EXPECT_EQ(files.operation_count(), 1);  // one append per event
  EXPECT_EQ(texts(files, "events.jsonl"), std::vector<std::string>{"one"});
}

TEST(JsonLines, FlushMakesEventsDurable) {
  MemoryFileSystem files;
  JsonLinesSink sink(files, "events.jsonl");
  sink.write(message("one"));
  files.sync_directory("/");
  sink.flush();
  const auto after = files.crash_after(files.operation_count(), 0);  // all unsynced bytes are lost
  EXPECT_EQ(texts(*after, "events.jsonl"), std::vector<std::string>{"one"});
}

}  // namespace
}  // namespace tutti::telemetry
