// Both file systems answer alike; the one in memory loses exactly what POSIX lets a disk lose.
#include "tutti/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <set>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti {
namespace {

std::unique_ptr<WritableFile> write(FileSystem& files, const std::string& path,
                                    std::string_view bytes) {
  auto file = files.create(path);
  file->append(bytes.data(), bytes.size());
  return file;
}

void write_durably(FileSystem& files, const std::string& path, std::string_view bytes) {
  write(files, path, bytes)->sync();
  files.sync_directory(parent_path(path));
}

template <typename Call>
ErrorKind kind_of(const Call& call, const std::string& path) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.kind();
  }
  ADD_FAILURE() << "no error for " << path;
  return ErrorKind::usage;
}

class AnyFileSystem : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      files_ = &posix_file_system();
      root_ = join_path(testing::TempDir(), "tutti_file_test_" + std::to_string(::getpid()));
    } else {
      files_ = &memory_;
      root_ = "/disk";
    }
    files_->remove_tree(root_);
    files_->create_directories(root_);
  }
  void TearDown() override { files_->remove_tree(root_); }
  std::string at(const std::string& name) const { return join_path(root_, name); }

  MemoryFileSystem memory_;
  FileSystem* files_ = nullptr;
  std::string root_;
};

TEST_P(AnyFileSystem, BytesComeBack) {
  const std::string bytes("a\0b\xff\n", 5);
  const auto file = write(*files_, at("f"), bytes);
  file->append("more", 4);
  file->append("", 0);
  file->sync();
  file->close();
  EXPECT_EQ(read_file(*files_, at("f")), bytes + "more");
  EXPECT_EQ(files_->size_bytes(at("f")), 9);
  EXPECT_EQ(kind_of([&] { file->append("x", 1); }, at("f")), ErrorKind::io);
}

TEST_P(AnyFileSystem, CreateTruncatesAndOpenAppendDoesNot) {
  write(*files_, at("f"), "old content")->close();
  write(*files_, at("f"), "new")->close();
  files_->open_append(at("f"))->append("er", 2);
  files_->open_append(at("g"))->append("first", 5);
  EXPECT_EQ(read_file(*files_, at("f")), "newer");
  EXPECT_EQ(read_file(*files_, at("g")), "first");
}

TEST_P(AnyFileSystem, EmptyFileMaps) {
  write(*files_, at("empty"), "")->close();
  EXPECT_EQ(files_->map(at("empty"))->bytes().size(), 0U);
}

TEST_P(AnyFileSystem, MappedBytesOutliveTheName) {
  write(*files_, at("f"), "stays")->close();
  const auto map = files_->map(at("f"));
  files_->remove_file(at("f"));
  EXPECT_EQ(map->bytes(), "stays");
  EXPECT_FALSE(files_->exists(at("f")));
}

TEST_P(AnyFileSystem, FoldersListSorted) {
  files_->create_directories(at("x/y/z"));
  files_->create_directories(at("x/y/z"));  // there already
  write(*files_, at("x/b"), "22")->close();
  write(*files_, at("x/a"), "1")->close();
  const std::vector<DirectoryEntry> entries = files_->list(at("x"));
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].size_bytes, 2);
  EXPECT_FALSE(entries[1].is_directory);
  EXPECT_EQ(entries[2].name, "y");
  EXPECT_TRUE(entries[2].is_directory);
  EXPECT_TRUE(files_->is_directory(at("x/y/z")));
  EXPECT_FALSE(files_->is_directory(at("x/a")));
  EXPECT_TRUE(files_->exists(at("x/a")));
  files_->remove_tree(at("x"));
  files_->remove_tree(at("x"));  // gone already
  EXPECT_FALSE(files_->exists(at("x/y/z")));
}

TEST_P(AnyFileSystem, RenameReplaces) {
  write(*files_, at("from"), "new")->close();
  write(*files_, at("to"), "old")->close();
  files_->rename(at("from"), at("to"));
  EXPECT_EQ(read_file(*files_, at("to")), "new");
  EXPECT_FALSE(files_->exists(at("from")));
  files_->create_directories(at("folder"));
  write(*files_, at("folder/inside"), "i")->close();
  files_->rename(at("folder"), at("moved"));
  EXPECT_EQ(read_file(*files_, at("moved/inside")), "i");
}

TEST_P(AnyFileSystem, WriteFileAtomicLeavesNoTemporary) {
  write_file_atomic(*files_, at("f"), "one");
  write_file_atomic(*files_, at("f"), "two");
  EXPECT_EQ(read_file(*files_, at("f")), "two");
  EXPECT_EQ(files_->list(root_).size(), 1U);
}

TEST_P(AnyFileSystem, WriteFileAtomicThatFailsLeavesNothing) {
  files_->create_directories(at("folder"));  // a file cannot take its place
  EXPECT_THROW(write_file_atomic(*files_, at("folder"), "bytes"), Error);
  EXPECT_EQ(files_->list(root_).size(), 1U);
}

TEST_P(AnyFileSystem, ErrorsHaveKindAndPath) {
  write(*files_, at("f"), "file")->close();
  files_->create_directories(at("d"));
  EXPECT_EQ(kind_of([&] { files_->map(at("absent")); }, at("absent")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->map(at("d")); }, at("d")), ErrorKind::io);
  EXPECT_EQ(kind_of([&] { files_->create(at("no/f")); }, at("no/f")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->create(at("f/g")); }, at("f/g")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->create(at("d")); }, at("d")), ErrorKind::io);
  EXPECT_EQ(kind_of([&] { files_->list(at("absent")); }, at("absent")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->list(at("f")); }, at("f")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->size_bytes(at("absent")); }, at("absent")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->remove_file(at("absent")); }, at("absent")),
            ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->rename(at("absent"), at("x")); }, at("x")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->create_directories(at("f/d")); }, at("f")), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->sync_directory(at("absent")); }, at("absent")),
            ErrorKind::not_found);
}

INSTANTIATE_TEST_SUITE_P(Both, AnyFileSystem, testing::Bool(),
                         [](const auto& which) { return which.param ? "posix" : "memory"; });

// A device stays a device after a write.
TEST(Streams, GetTheBytesThemselves) {
  FileSystem& files = posix_file_system();
  const std::string pipe =
      join_path(testing::TempDir(), "tutti_file_test_pipe_" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_TRUE(files.is_stream(pipe));
  write_file_atomic(files, pipe, "through");
  char bytes[16] = {};
  EXPECT_EQ(::read(reader, bytes, sizeof bytes), 7);
  EXPECT_STREQ(bytes, "through");
  EXPECT_TRUE(files.is_stream(pipe));
  ::close(reader);
  files.remove_file(pipe);
}

TEST(Streams, PipesAreNeitherReadNorWaitedFor) {
  FileSystem& files = posix_file_system();
  const std::string pipe =
      join_path(testing::TempDir(), "tutti_file_test_pipe_" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(kind_of([&] { files.map(pipe); }, pipe), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { read_file(files, "/dev/null"); }, "a device"), ErrorKind::usage);
  files.remove_file(pipe);
}

TEST(Streams, AFullDeviceIsAnError) {
  FileSystem& files = posix_file_system();
  if (!files.is_stream("/dev/full")) GTEST_SKIP() << "skipped: no /dev/full";
  EXPECT_THROW(write_file_atomic(files, "/dev/full", "bytes"), Error);
  EXPECT_TRUE(files.is_stream("/dev/full"));
  EXPECT_FALSE(files.exists("/dev/full.tmp"));
}

// Links that go round in a circle stand for a disk that does not answer.
TEST(Existence, UnknownExistenceIsAnError) {
  FileSystem& files = posix_file_system();
  const std::string link =
      join_path(testing::TempDir(), "tutti_file_test_circle_" + std::to_string(::getpid()));
  ASSERT_EQ(::symlink(link.c_str(), link.c_str()), 0);
  EXPECT_THROW(files.exists(link), Error);
  ASSERT_EQ(::unlink(link.c_str()), 0);
  EXPECT_FALSE(files.exists(link));
  EXPECT_FALSE(files.exists(join_path(testing::TempDir(), std::string(300, 'x'))));
  EXPECT_FALSE(files.exists("/dev/null/file"));
}

TEST(Paths, JoinAndSplit) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", "/b"), "/b");
  EXPECT_EQ(parent_path("a/b/c"), "a/b");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(base_name("a/b"), "b");
  EXPECT_EQ(base_name("b"), "b");
}

// What can be under a name after losing power now: each distinct content, "(none)" for no file.
std::set<std::string> outcomes(const MemoryFileSystem& files, const std::string& path,
                               uint64_t seeds = 300) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const auto after = files.crash_after(files.operation_count(), seed);
    seen.insert(after->exists(path) ? read_file(*after, path) : "(none)");
  }
  return seen;
}

TEST(PowerCut, DurableBytesAlwaysSurvive) {
  MemoryFileSystem files;
  write_durably(files, "/f", "durable");
  EXPECT_EQ(outcomes(files, "/f"), std::set<std::string>{"durable"});
}

TEST(PowerCut, AnUnsyncedNameMayBeMissing) {
  MemoryFileSystem files;
  write(files, "/f", "durable")->sync();
  EXPECT_EQ(outcomes(files, "/f"), (std::set<std::string>{"(none)", "durable"}));
}

TEST(PowerCut, UnsyncedBytesAreLostCutOrZero) {
  MemoryFileSystem files;
  write_durably(files, "/f", "ab");
  files.open_append("/f")->append("cd", 2);
  const std::set<std::string> seen = outcomes(files, "/f");
  EXPECT_EQ(seen, (std::set<std::string>{"ab", "abc", "abcd", std::string("ab\0", 3),
                                         std::string("ab\0\0", 4)}));
}

TEST(PowerCut, SectorsSurviveOneByOne) {
  MemoryFileSystem files;
  write_durably(files, "/f", "");
  const std::string data(1536, 'x');
  files.open_append("/f")->append(data.data(), data.size());
  std::set<std::string> patterns;
  for (const std::string& content : outcomes(files, "/f", 3000)) {
    std::string pattern;
    for (size_t i = 0; i < content.size(); i += 512) pattern += content[i] == 'x' ? 'x' : '0';
    if (content.size() == data.size()) patterns.insert(pattern);
  }
  EXPECT_EQ(patterns,
            (std::set<std::string>{"xxx", "000", "00x", "0x0", "0xx", "x00", "x0x", "xx0"}));
}

TEST(PowerCut, AnUnsyncedTruncationMayBeUndone) {
  MemoryFileSystem files;
  write_durably(files, "/f", "old");
  const auto file = write(files, "/f", "n");
  EXPECT_EQ(outcomes(files, "/f"), (std::set<std::string>{"old", "n", "", std::string("\0", 1)}));
  file->sync();
  EXPECT_EQ(outcomes(files, "/f"), std::set<std::string>{"n"});
}

TEST(PowerCut, RenameIsAtomicAndNeedsASyncOfTheFolder) {
  MemoryFileSystem files;
  write_durably(files, "/f", "old");
  write_durably(files, "/g", "new");
  files.rename("/g", "/f");
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto after = files.crash_after(files.operation_count(), seed);
    EXPECT_EQ(after->exists("/g"), read_file(*after, "/f") == "old");
  }
  EXPECT_EQ(outcomes(files, "/f"), (std::set<std::string>{"old", "new"}));
  files.sync_directory("/");
  EXPECT_EQ(outcomes(files, "/f"), std::set<std::string>{"new"});
}

TEST(PowerCut, ChangesOfDifferentNamesReorder) {
  MemoryFileSystem files;
  write(files, "/a", "a")->sync();
  write(files, "/b", "b")->sync();
  std::set<std::pair<bool, bool>> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const auto after = files.crash_after(files.operation_count(), seed);
    seen.emplace(after->exists("/a"), after->exists("/b"));
  }
  EXPECT_EQ(seen.size(), 4U);
}

TEST(PowerCut, UnsyncedNameLosesItsFolder) {
  MemoryFileSystem files;
  files.create_directories("/d/e");
  write_durably(files, "/d/e/f", "deep");
  EXPECT_EQ(outcomes(files, "/d/e/f"), (std::set<std::string>{"(none)", "deep"}));
  files.sync_directory("/d");
  EXPECT_EQ(outcomes(files, "/d/e/f"), (std::set<std::string>{"(none)", "deep"}));
  files.sync_directory("/");
  EXPECT_EQ(outcomes(files, "/d/e/f"), std::set<std::string>{"deep"});
}

TEST(PowerCut, AnUnsyncedRemovalMayComeBack) {
  MemoryFileSystem files;
  files.create_directories("/d");
  files.sync_directory("/");
  write_durably(files, "/d/f", "x");
  files.remove_tree("/d");
  EXPECT_EQ(outcomes(files, "/d/f"), (std::set<std::string>{"(none)", "x"}));
  files.sync_directory("/");
  EXPECT_EQ(outcomes(files, "/d/f"), std::set<std::string>{"(none)"});
}

TEST(PowerCut, AtomicWriteGivesOldOrNewAtEveryOperation) {
  MemoryFileSystem files;
  write_durably(files, "/f", "old");
  files.start_record();
  write_file_atomic(files, "/f", "new content");
  for (int64_t k = 0; k <= files.operation_count(); ++k) {
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const std::string content = read_file(*files.crash_after(k, seed), "/f");
      const bool done = k == files.operation_count();
      EXPECT_TRUE(content == "new content" || (content == "old" && !done)) << k << " " << content;
    }
  }
}

TEST(PowerCut, ACarelessWriteIsCaught) {
  MemoryFileSystem files;
  write_durably(files, "/f", "old");
  files.start_record();
  write(files, "/f.tmp", "new content")->close();  // no sync before the rename
  files.rename("/f.tmp", "/f");
  files.sync_directory("/");
  const std::set<std::string> seen = outcomes(files, "/f");
  EXPECT_EQ(seen.count(""), 1U);
  EXPECT_EQ(seen.count("new"), 1U);
  EXPECT_EQ(seen.count(std::string(11, '\0')), 1U);
}

TEST(Faults, TheRecordReadsLikeTheCalls) {
  MemoryFileSystem files;
  files.create_directories("d");
  write_file_atomic(files, "d/f", "abc");
  std::vector<std::string> record;
  for (int64_t i = 0; i < files.operation_count(); ++i) record.push_back(files.operation(i));
  EXPECT_EQ(record,
            (std::vector<std::string>{"make_folder d", "create d/f.tmp", "append d/f.tmp 3",
                                      "sync d/f.tmp", "rename d/f.tmp d/f", "sync_folder d"}));
}

TEST(Faults, AFullDiskTakesWhatFits) {
  MemoryFileSystem files;
  files.set_capacity(5);
  EXPECT_EQ(kind_of([&] { write(files, "/f", "abcdefgh"); }, "/f"), ErrorKind::no_space);
  EXPECT_EQ(read_file(files, "/f"), "abcde");
  files.remove_file("/f");
  write(files, "/g", "12345")->sync();
  EXPECT_EQ(read_file(files, "/g"), "12345");
}

TEST(Faults, OneOperationOrAllThatFollow) {
  MemoryFileSystem files;
  files.fail_operation(1, ErrorKind::io, false);
  const auto file = files.create("/f");
  EXPECT_EQ(kind_of([&] { file->append("a", 1); }, "/f"), ErrorKind::io);
  file->append("b", 1);
  EXPECT_EQ(read_file(files, "/f"), "b");
  files.start_record();
  files.fail_operation(0, ErrorKind::no_space, true);
  EXPECT_EQ(kind_of([&] { file->append("c", 1); }, "/f"), ErrorKind::no_space);
  EXPECT_EQ(kind_of([&] { files.create("/g"); }, "/g"), ErrorKind::no_space);
  EXPECT_EQ(kind_of([&] { file->sync(); }, "/f"), ErrorKind::no_space);
  files.remove_file("/f");  // always possible on a full disk
  files.clear_faults();
  write(files, "/g", "fine")->sync();
  EXPECT_EQ(read_file(files, "/g"), "fine");
}

}  // namespace
}  // namespace tutti
