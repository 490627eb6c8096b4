#include "tutti/checkpoint/store/reader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/safetensors.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

TEST(Reader, OddTensorsComeBackBitForBit) {
  const FakeRun run(4);
  for (const WriteOptions& options : {WriteOptions{}, small_pieces()}) {
    MemoryFileSystem files;
    const Written written = write_checkpoint(files, "run", run.tensors, run.state, options);
    Reader reader(files, written.path);
    EXPECT_EQ(difference_from_fake_run(reader), "");
    for (size_t i = 0; i < run.tensors.size(); ++i) {
      EXPECT_EQ(reader.bytes(run.tensors[i].name), run.data(i)) << run.tensors[i].name;
    }
    int64_t bytes = 0;
    for (const DirectoryEntry& entry : files.list(written.path)) bytes += entry.size_bytes;
    EXPECT_EQ(written.bytes, bytes);
  }
}

TEST(Reader, NoTensorsAtAll) {
  MemoryFileSystem files;
  Reader reader(files, write_checkpoint(files, "run", {}, FakeRun(1).state).path);
  EXPECT_TRUE(reader.manifest().tensors.empty());
  reader.verify_contents();
}

// A global tensor of increasing integers, saved as a grid of slices and joined again.
TEST(Reader, SlicesJoinIntoTheGlobalTensor) {
  const std::vector<int64_t> shape = {4, 3, 6};
  std::vector<int32_t> global(72);
  std::iota(global.begin(), global.end(), 0);
  const std::vector<std::vector<int64_t>> grids = {{1, 1, 1}, {2, 1, 1}, {1, 3, 1},
                                                   {1, 1, 2}, {2, 3, 1}, {4, 1, 3}};
  for (const std::vector<int64_t>& grid : grids) {
    SCOPED_TRACE(format_shape(grid));
    std::vector<std::vector<int32_t>> parts;
    std::vector<TensorSource> sources;
    const std::vector<int64_t> part = {shape[0] / grid[0], shape[1] / grid[1], shape[2] / grid[2]};
    for (int64_t a = 0; a < shape[0]; a += part[0]) {
      for (int64_t b = 0; b < shape[1]; b += part[1]) {
        for (int64_t c = 0; c < shape[2]; c += part[2]) {
          std::vector<int32_t>& values = parts.emplace_back();
          for (int64_t i = 0; i < part[0]; ++i) {
            for (int64_t j = 0; j < part[1]; ++j) {
              for (int64_t k = 0; k < part[2]; ++k) {
                const int64_t at = ((a + i) * shape[1] + b + j) * shape[2] + c + k;
                values.push_back(global[static_cast<size_t>(at)]);
              }
            }
          }
          sources.push_back({"t", DType::i32, part, nullptr, shape, {a, b, c}});
        }
      }
    }
    for (size_t i = 0; i < parts.size(); ++i) sources[i].data = parts[i].data();
    MemoryFileSystem files;
    Reader reader(files, write_checkpoint(files, "run", sources, FakeRun(1).state).path);
    EXPECT_EQ(reader.manifest().files.size(), sources.size());
    std::vector<int32_t> loaded(72, -1);
    reader.load("t", DType::i32, shape, loaded.data());
    EXPECT_EQ(loaded, global);

    // Any box of it, whichever slices it crosses.
    for (int64_t box = 0; box < 4 * 3 * 6 * 4 * 3 * 6; box += 5) {
      int64_t rest = box;
      std::vector<int64_t> offset, size;
      for (const int64_t extent : shape) {
        offset.push_back(rest % extent);
        rest /= extent;
        size.push_back(1 + rest % extent);
        rest /= extent;
        size.back() = std::min(size.back(), extent - offset.back());
      }
      std::vector<int32_t> expected;
      for (int64_t i = 0; i < size[0]; ++i) {
        for (int64_t j = 0; j < size[1]; ++j) {
          for (int64_t k = 0; k < size[2]; ++k) {
            expected.push_back(static_cast<int32_t>(
                ((offset[0] + i) * shape[1] + offset[1] + j) * shape[2] + offset[2] + k));
          }
        }
      }
      std::vector<int32_t> boxed(expected.size(), -1);
      reader.load({{"t", DType::i32, size, boxed.data(), shape, offset}});
      ASSERT_EQ(boxed, expected) << format_shape(offset) << " " << format_shape(size);
    }
  }
}

TEST(Reader, WrongRequestsAreClearErrors) {
  MemoryFileSystem files;
  const FakeRun run(1);
  Reader reader(files, write_checkpoint(files, "run", run.tensors, run.state).path);
  float out[168];
  EXPECT_TRUE(says(error_of([&] {
                     reader.load("matrlx", DType::f32, {7, 24}, out);
                   }),
                   ErrorKind::not_found, "did you mean 'matrix'"));
  EXPECT_TRUE(says(error_of([&] {
                     reader.load("matrix", DType::bf16, {7, 24}, out);
                   }),
                   ErrorKind::usage, "is f32 [7, 24] in the checkpoint; expected bf16 [7, 24]"));
  EXPECT_TRUE(says(error_of([&] {
                     reader.load("matrix", DType::f32, {24, 7}, out);
                   }),
                   ErrorKind::usage, "expected f32 [24, 7]"));
  EXPECT_TRUE(says(error_of([&] { Reader(files, "run/step-00000002"); }), ErrorKind::not_found,
                   "'run/step-00000002' is not a checkpoint"));
}

TEST(Reader, LoadVerifiesExactlyWhatItReads) {
  MemoryFileSystem files;
  const FakeRun run(1);
  const std::string path =
      write_checkpoint(files, "run", run.tensors, run.state, small_pieces()).path;
  const TensorRecord matrix = Reader(files, path).tensor("matrix");
  const Slice& slice = matrix.slices.front();
  const FileRecord file = Reader(files, path).manifest().files[static_cast<size_t>(slice.file)];
  files.damage(join_path(path, file.name), (slice.begin + slice.end) / 2, 1);
  Reader reader(files, path);
  std::vector<char> out(7 * 24 * 4);
  EXPECT_TRUE(says(error_of([&] {
                     reader.load("matrix", DType::f32, {7, 24}, out.data());
                   }),
                   ErrorKind::corrupt, file.name));
  EXPECT_TRUE(says(error_of([&] { reader.bytes("matrix"); }), ErrorKind::corrupt, file.name));
  EXPECT_TRUE(says(error_of([&] { reader.verify_contents(); }), ErrorKind::corrupt, file.name));
  reader.load("tokens", DType::i32, {2, 3, 2}, out.data());
  EXPECT_EQ(std::memcmp(out.data(), run.data(5).data(), run.data(5).size()), 0);
}

class NewestValid : public testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t step : {1, 2, 3}) {
      const FakeRun run(step);
      write_checkpoint(files_, "run", run.tensors, run.state, small_pieces());
    }
  }
  int64_t newest() {
    skipped_.clear();
    const auto skip = [&](const std::string& path, const std::string& reason) {
      skipped_.push_back(path + ": " + reason);
    };
    std::optional<Reader> reader = newest_valid(files_, "run", skip, serially);
    if (!reader) return -1;
    EXPECT_EQ(difference_from_fake_run(*reader), "");
    return reader->manifest().state.step;
  }
  MemoryFileSystem files_;
  std::vector<std::string> skipped_;
};

TEST_F(NewestValid, ListShowsAll) {
  files_.create_directories("run/step-00000004");  // a save that did not finish
  files_.create_directories("run/other");
  const std::vector<CheckpointInfo> list = list_checkpoints(files_, "run");
  ASSERT_EQ(list.size(), 4U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(list[i].valid) << list[i].problem;
    EXPECT_EQ(list[i].step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(list[i].validation_loss, FakeRun(list[i].step).state.validation_loss);
    EXPECT_EQ(list[i].created.size(), 20U);
  }
  EXPECT_FALSE(list[3].valid);
  EXPECT_NE(list[3].problem.find("did not finish"), std::string::npos);
  EXPECT_TRUE(list_checkpoints(files_, "absent").empty());
}

TEST_F(NewestValid, SkipsDamagedOnesWithTheReason) {
  EXPECT_EQ(newest(), 3);
  EXPECT_TRUE(skipped_.empty());
  const std::string shard = "run/step-00000003/shard-00000-of-00002.safetensors";
  files_.damage(shard, files_.size_bytes(shard) - 1, 4);  // only the content checksum knows
  EXPECT_TRUE(list_checkpoints(files_, "run").back().valid);
  EXPECT_EQ(newest(), 2);
  ASSERT_EQ(skipped_.size(), 1U);
  EXPECT_NE(skipped_[0].find(shard + ": damaged"), std::string::npos) << skipped_[0];
  files_.cut("run/step-00000002/shard-00001-of-00002.safetensors", 100);
  EXPECT_EQ(newest(), 1);
  ASSERT_EQ(skipped_.size(), 2U);
  EXPECT_NE(skipped_[1].find("100 bytes instead of"), std::string::npos) << skipped_[1];
  files_.damage("run/step-00000001/manifest.json", 40, 1);
  EXPECT_EQ(newest(), -1);
  EXPECT_EQ(skipped_.size(), 3U);
  EXPECT_FALSE(list_checkpoints(files_, "run")[0].valid);
}

TEST_F(NewestValid, CopiesUnderAnotherStepAreRejected) {
  files_.rename("run/step-00000001", "run/step-00000007");
  EXPECT_EQ(newest(), 3);
  ASSERT_EQ(skipped_.size(), 1U);
  EXPECT_NE(skipped_[0].find("saved at step 1"), std::string::npos) << skipped_[0];
}

}  // namespace
}  // namespace tutti::checkpoint
