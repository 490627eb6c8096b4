#include "tutti/checkpoint/store/verify.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

class VerifyTest : public testing::Test {
 protected:
  void save(const WriteOptions& options) {
    const FakeRun run(5);
    path_ = write_checkpoint(files_, "run", run.tensors, run.state, options).path;
  }
  std::vector<Finding> verify() { return verify_checkpoint(files_, path_, {}, serially); }

  MemoryFileSystem files_;
  std::string path_;
};

TEST_F(VerifyTest, IntactHasNoFindings) {
  for (const WriteOptions& options : {WriteOptions{}, small_pieces()}) {
    save(options);
    int64_t last = 0;
    int64_t total = 0;
    const auto progress = [&](int64_t done_bytes, int64_t total_bytes) {
      EXPECT_GE(done_bytes, last);
      last = done_bytes;
      total = total_bytes;
    };
    EXPECT_TRUE(verify_checkpoint(files_, path_, progress).empty());
    EXPECT_EQ(last, total);
    EXPECT_EQ(total, Reader(files_, path_).manifest().total_bytes());
  }
}

TEST_F(VerifyTest, EveryFlippedBitOfEveryFileIsFound) {
  save(small_pieces());
  int64_t bytes = 0;
  for (const DirectoryEntry& entry : files_.list(path_)) {
    const std::string file = join_path(path_, entry.name);
    for (int64_t at = 0; at < entry.size_bytes; ++at, ++bytes) {
      for (unsigned bit = 0; bit < 8; ++bit) {
        files_.damage(file, at, static_cast<uint8_t>(1U << bit));
        const std::vector<Finding> findings = verify();
        ASSERT_EQ(findings.size(), 1U) << entry.name << " byte " << at << " bit " << bit;
        ASSERT_EQ(findings[0].file, entry.name);
        const int64_t distance = at - findings[0].offset;
        ASSERT_TRUE(entry.name == kManifestName || (distance >= 0 && distance < 100));
        files_.damage(file, at, static_cast<uint8_t>(1U << bit));
      }
    }
  }
  EXPECT_TRUE(verify().empty());
  EXPECT_GT(bytes, 3000);
}

TEST_F(VerifyTest, AMissingByteAtTheEndIsFound) {
  save(small_pieces());
  for (const DirectoryEntry& entry : files_.list(path_)) {
    const std::string file = join_path(path_, entry.name);
    const std::string content = read_file(files_, file);
    for (const int64_t kept : {entry.size_bytes - 1, entry.size_bytes / 2, int64_t{0}}) {
      files_.cut(file, kept);
      const std::vector<Finding> findings = verify();
      ASSERT_FALSE(findings.empty()) << entry.name << " " << kept;
      EXPECT_EQ(findings[0].file, entry.name);
      files_.create(file)->append(content.data(), content.size());
    }
    files_.open_append(file)->append("x", 1);  // a byte too many
    ASSERT_FALSE(verify().empty()) << entry.name;
    EXPECT_EQ(verify()[0].file, entry.name);
    files_.remove_file(file);
    ASSERT_FALSE(verify().empty()) << entry.name;
    EXPECT_EQ(verify()[0].file, entry.name);
    files_.create(file)->append(content.data(), content.size());
  }
  EXPECT_TRUE(verify().empty());
}

TEST_F(VerifyTest, EveryDamagedFileIsListed) {
  save(small_pieces());
  const Manifest manifest = Reader(files_, path_).manifest();
  ASSERT_GE(manifest.files.size(), 2U);
  for (const FileRecord& file : manifest.files) {
    files_.damage(join_path(path_, file.name), file.bytes - 1, 0x80);
  }
  EXPECT_EQ(verify().size(), manifest.files.size());
}

TEST_F(VerifyTest, OfAnotherStepOrNothing) {
  save({});
  files_.rename(path_, "run/step-00000009");
  for (const char* path : {"run/step-00000009", "run/step-00000009/"}) {
    const std::vector<Finding> findings = verify_checkpoint(files_, path);
    ASSERT_EQ(findings.size(), 1U) << path;
    EXPECT_NE(findings[0].what.find("saved at step 5"), std::string::npos) << path;
  }
  EXPECT_TRUE(says(error_of([&] { verify_checkpoint(files_, "run/absent"); }), ErrorKind::not_found,
                   "run/absent"));
}

}  // namespace
}  // namespace tutti::checkpoint
