#include "tutti/mlperf/log.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/mlperf/testing/test_support.h"

namespace tutti::mlperf {
namespace {

struct Seen {
  std::vector<std::pair<int64_t, std::string>> records;  // line, key
  std::vector<int64_t> problems;
  LogSize size;
};

Seen read_text(std::string_view text) {
  Seen seen;
  seen.size = read_log_text(
      text, {[&](const Record& record) {
               seen.records.emplace_back(record.line, record.key);
               return true;
             },
             [&](const LogProblem& problem) { seen.problems.push_back(problem.line); }});
  return seen;
}

const std::string kRecord = R"(:::MLLOG {"time_ms": 1, "key": "a", "value": 1, "metadata": {}})";

TEST(Log, RecordsAmongOtherText) {
  const Seen seen =
      read_text("hello\n  0: " + kRecord + "\n\n12: :::MLLOG x " + kRecord + "\nbye\n");
  EXPECT_EQ(seen.records, (std::vector<std::pair<int64_t, std::string>>{{2, "a"}, {4, "a"}}));
  EXPECT_TRUE(seen.problems.empty());
  EXPECT_EQ(seen.size.lines, 5);
  EXPECT_FALSE(seen.size.cut);
}

TEST(Log, CarriageReturnsSeparateRecordsOfOneLine) {
  const Seen seen = read_text("10%\r20%\r" + kRecord + "\r30%\r\n" + kRecord + "\r\n");
  EXPECT_EQ(seen.records, (std::vector<std::pair<int64_t, std::string>>{{1, "a"}, {2, "a"}}));
}

TEST(Log, ProblemsHaveLinesAndReadingGoesOn) {
  const Seen seen = read_text(":::MLLOG {\"time_ms\": \n" + kRecord + "\n:::MLLOG \n" + kRecord);
  EXPECT_EQ(seen.problems, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(seen.records.size(), 2U);
  EXPECT_TRUE(seen.size.cut);
}

TEST(Log, StopsWhenSeenEnough) {
  int seen = 0;
  read_log_text(kRecord + "\n" + kRecord + "\n", {[&](const Record&) { return ++seen < 1; }, {}});
  EXPECT_EQ(seen, 1);
}

TEST(Log, EmptyAndMissingFiles) {
  MemoryFileSystem files;
  write_file(files, "empty.txt", "");
  EXPECT_EQ(read_log(files, "empty.txt", {}).lines, 0);
  EXPECT_THROW(read_log(files, "missing.txt", {}), Error);
}

TEST(Log, LongLines) {
  // 100 MB of text in front of a record, and a record of 100 MB.
  const std::string text = std::string(100'000'000, 'x') + kRecord + "\n:::MLLOG {\"key\": \"" +
                           std::string(100'000'000, 'y') + "\"}\n" + kRecord + "\n";
  const Seen seen = read_text(text);
  EXPECT_EQ(seen.records.size(), 2U);
  EXPECT_EQ(seen.problems, (std::vector<int64_t>{2}));
}

}  // namespace
}  // namespace tutti::mlperf
