// Replays the transcripts of tests/cli/transcripts: commands with the output and exit code that
// users and scripts rely on. A transcript:
//
//   # why this is here
//   $ tutti data inspect missing
//   tutti: error: ...
//   [exit 2]
//
// Each command runs in `sh`, in an empty folder that the commands of one transcript share, with
// `tutti` on the path. Output is standard output and standard error together, in that order. In an
// expected line `<...>` stands for any text; a line `...` stands for any number of lines. Exit code
// 0 is not written.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tutti_test_paths.h"

namespace {

namespace fs = std::filesystem;

constexpr const char* kTranscripts = TUTTI_SOURCE_DIR "/tests/cli/transcripts";
constexpr std::string_view kAnyText = "<...>";
constexpr std::string_view kAnyLines = "...";

struct Exchange {
  std::string command;
  int line = 0;
  std::vector<std::string> expected;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<Exchange> read_transcript(const fs::path& path) {
  std::vector<Exchange> exchanges;
  int number = 0;
  for (const std::string& line : lines_of(text_of(path))) {
    ++number;
    if (line.rfind("# ", 0) == 0) continue;
    if (line.rfind("$ ", 0) == 0) {
      exchanges.push_back({line.substr(2), number, {}});
    } else if (!exchanges.empty()) {
      exchanges.back().expected.push_back(line);
    }
  }
  // Empty lines before the next command are layout.
  for (Exchange& exchange : exchanges) {
    while (!exchange.expected.empty() && exchange.expected.back().empty()) {
      exchange.expected.pop_back();
    }
  }
  return exchanges;
}

std::vector<std::string> run(const std::string& command, const fs::path& folder) {
  const fs::path out = folder.string() + ".out";
  const fs::path err = folder.string() + ".err";
  const std::string line = "cd '" + folder.string() + "' && { " + command + "\n} > '" +
                           out.string() + "' 2> '" + err.string() + "' < /dev/null";
  const int status = std::system(line.c_str());
  std::vector<std::string> lines = lines_of(text_of(out));
  for (const std::string& error : lines_of(text_of(err))) lines.push_back(error);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (code != 0) lines.push_back("[exit " + std::to_string(code) + "]");
  return lines;
}

bool line_matches(const std::string& expected, const std::string& actual) {
  size_t at = 0;
  size_t from = 0;
  bool anchored = true;
  while (true) {
    const size_t any = expected.find(kAnyText, from);
    const std::string part = expected.substr(from, any - from);
    if (any == std::string::npos) {
      return anchored ? actual.substr(at) == part
                      : actual.size() >= at + part.size() &&
                            actual.compare(actual.size() - part.size(), part.size(), part) == 0;
    }
    const size_t found = anchored
                             ? (actual.compare(at, part.size(), part) == 0 ? at : std::string::npos)
                             : actual.find(part, at);
    if (found == std::string::npos) return false;
    at = found + part.size();
    from = any + kAnyText.size();
    anchored = false;
  }
}

// reachable[j]: the first j actual lines can be what the expected ones so far stand for.
bool matches(const std::vector<std::string>& expected, const std::vector<std::string>& actual) {
  std::vector<bool> reachable(actual.size() + 1, false);
  reachable[0] = true;
  for (const std::string& line : expected) {
    std::vector<bool> next(actual.size() + 1, false);
    for (size_t j = 0; j <= actual.size(); ++j) {
      if (line == kAnyLines) {
        next[j] = reachable[j] || (j > 0 && next[j - 1]);
      } else if (j > 0 && reachable[j - 1]) {
        next[j] = line_matches(line, actual[j - 1]);
      }
    }
    reachable = next;
  }
  return reachable[actual.size()];
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "  " + line + "\n";
  return text;
}

std::vector<std::string> transcript_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kTranscripts)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Transcript : public testing::TestWithParam<std::string> {};

TEST_P(Transcript, HoldsToTheLetter) {
  const std::string path = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
  ::setenv("PATH", (fs::path(TUTTI_BINARY).parent_path().string() + ":" + path).c_str(), 1);
  // The process in the name: several of these tests may run on one machine.
  const fs::path folder = fs::path(testing::TempDir()) /
                          ("tutti_transcript_" + GetParam() + "_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  const fs::path file = fs::path(kTranscripts) / (GetParam() + ".txt");
  const auto exchanges = read_transcript(file);
  ASSERT_FALSE(exchanges.empty());
  for (const Exchange& exchange : exchanges) {
    const auto actual = run(exchange.command, folder);
    EXPECT_TRUE(matches(exchange.expected, actual))
        << file.string() << ":" << exchange.line << "\n$ " << exchange.command << "\nexpected:\n"
        << joined(exchange.expected) << "actual:\n"
        << joined(actual);
  }
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Transcripts, Transcript, testing::ValuesIn(transcript_names()),
                         [](const auto& test) { return test.param; });

TEST(Matching, AnyTextAndAnyLines) {
  EXPECT_TRUE(line_matches("a <...> c", "a b c"));
  EXPECT_TRUE(line_matches("a <...>c<...>", "a bc d"));
  EXPECT_FALSE(line_matches("a <...> c", "a b d"));
  EXPECT_FALSE(line_matches("a", "ab"));
  EXPECT_TRUE(matches({"a", "...", "d"}, {"a", "b", "c", "d"}));
  EXPECT_TRUE(matches({"a", "..."}, {"a"}));
  EXPECT_FALSE(matches({"a", "...", "d"}, {"a", "b"}));
  EXPECT_FALSE(matches({}, {"a"}));
}

}  // namespace
