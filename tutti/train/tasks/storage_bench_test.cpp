#include "tutti/train/tasks/storage_bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/spec/model/params.h"

namespace tutti::train {
namespace {

spec::ModelConfig small_model() {
  spec::ModelConfig model;
  model.name = "small";
  model.layers = 2;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.head_dim = 16;
  model.ffn = 256;
  model.vocabulary = 257;
  model.context = 32;
  return model;
}

StorageBenchOptions quick() {
  StorageBenchOptions options;
  options.size_bytes = kLeastStorageBytes;
  options.seconds = 0.5;
  options.readers = 3;
  options.repeats = 2;
  options.model = small_model();
  options.around_cache = false;
  return options;
}

class StorageBenchTest : public ::testing::Test {
 protected:
  StorageBenchTest() {
    files_.create_directories("/disk/mine");
    write_file_atomic(files_, "/disk/mine/file", "kept");
    write_file_atomic(files_, "/disk/other", "kept too");
  }

  void expect_as_before() {
    ASSERT_EQ(files_.list("/disk").size(), 2U);
    ASSERT_EQ(files_.list("/disk/mine").size(), 1U);
    EXPECT_EQ(read_file(files_, "/disk/mine/file"), "kept");
    EXPECT_EQ(read_file(files_, "/disk/other"), "kept too");
  }

  MemoryFileSystem files_;
};

TEST_F(StorageBenchTest, MeasuresEverythingAndLeavesNothing) {
  int64_t last = -1;
  StorageBenchOptions options = quick();
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_TRUE(done == last + 1 || done == total) << done;
    EXPECT_LE(done, total);
    last = done;
  };
  const StorageBench bench = bench_storage(files_, "/disk", options);
  const std::vector<std::string> names = {
      "write",          "read",       "read_many",       "random_4k",
      "random_4k_many", "random_64k", "random_64k_many", "small_write",
      "create",         "stat",       "remove",          "checkpoint_save",
      "checkpoint_load"};
  ASSERT_EQ(bench.figures.size(), names.size());
  for (const std::string& name : names) {
    const StorageFigure* figure = bench.find(name);
    ASSERT_NE(figure, nullptr) << name;
    EXPECT_GT(figure->value, 0) << name;
    EXPECT_GT(figure->requests, 0) << name;
    EXPECT_EQ(figure->ceiling, 0) << name;  // a disk in memory has none
    EXPECT_GE(figure->p99_seconds, figure->median_seconds) << name;
  }
  for (const char* name : {"write", "read", "read_many"}) {
    const StorageFigure& figure = *bench.find(name);
    EXPECT_EQ(figure.bytes, figure.requests * bench.file_bytes) << name;
    EXPECT_EQ(static_cast<int64_t>(figure.repeats.size()), figure.requests) << name;
  }
  EXPECT_EQ(bench.find("random_64k")->bytes, bench.find("random_64k")->requests * 65536);
  EXPECT_EQ(bench.find("stat")->requests, bench.find("create")->requests);
  EXPECT_EQ(bench.find("remove")->requests, bench.find("create")->requests);
  const StorageFigure& save = *bench.find("checkpoint_save");
  EXPECT_EQ(save.bytes, save.requests * bench.checkpoint.bytes);
  EXPECT_LE(bench.checkpoint.bytes, options.size_bytes / 2);
  expect_as_before();
}

// Wherever the disk fills up or fails, the folder is gone and nothing else is.
TEST_F(StorageBenchTest, AFullDiskIsAnErrorAndIsLeftAsItWas) {
  for (const int64_t capacity : {int64_t{1} << 20, int64_t{9} << 20}) {
    files_.set_capacity(capacity);
    try {
      bench_storage(files_, "/disk", quick());
      // Files are as large as time allows, so that all may have fitted.
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::no_space);
    }
    expect_as_before();
  }
}

TEST_F(StorageBenchTest, AfterAWriteErrorNothingIsLeft) {
  for (const int64_t operation : {0, 1, 2, 3, 5, 8, 30, 60}) {
    files_.fail_operation(files_.operation_count() + operation, ErrorKind::io, false);
    try {
      bench_storage(files_, "/disk", quick());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io) << operation;
    }
    files_.clear_faults();
    expect_as_before();
    files_.start_record();
  }
}

TEST_F(StorageBenchTest, AnInterruptionLeavesNothing) {
  struct Stopped {};
  for (const int after : {0, 1, 4, 10, 100}) {
    StorageBenchOptions options = quick();
    std::atomic<int> calls{0};
    options.check = [&] {
      if (calls++ >= after) throw Stopped{};
    };
    EXPECT_THROW(bench_storage(files_, "/disk", options), Stopped) << after;
    expect_as_before();
  }
}

TEST_F(StorageBenchTest, AFolderOfItsNameIsLeftAlone) {
  // Its name is in the error of the first write.
  std::string name;
  files_.set_capacity(1);
  try {
    bench_storage(files_, "/disk", quick());
  } catch (const Error& error) {
    const std::string what = error.what();
    const size_t begin = what.find("/disk/tutti-bench");
    ASSERT_NE(begin, std::string::npos) << what;
    name = what.substr(begin, what.find("/file", begin) - begin);
  }
  files_.set_capacity(INT64_MAX);
  ASSERT_FALSE(name.empty());
  files_.create_directories(name);
  write_file_atomic(files_, join_path(name, "file"), "another's");
  bench_storage(files_, "/disk", quick());
  EXPECT_EQ(read_file(files_, join_path(name, "file")), "another's");
}

TEST_F(StorageBenchTest, AMissingFolderIsAnError) {
  EXPECT_THROW(bench_storage(files_, "/nowhere", quick()), Error);
  EXPECT_FALSE(files_.exists("/nowhere"));
}

TEST(StorageBenchOnADisk, HasCeilingsAndRefusesToFillIt) {
  FileSystem& files = posix_file_system();
  const std::string folder = ::testing::TempDir() + "/storage_bench_" + std::to_string(::getpid());
  files.create_directories(folder);
  StorageBenchOptions options = quick();
  options.around_cache = true;
  const StorageBench bench = bench_storage(files, folder, options);
  for (const char* name : {"write", "read", "read_many", "random_4k", "random_64k_many",
                           "small_write", "checkpoint_save", "checkpoint_load"}) {
    EXPECT_GT(bench.find(name)->ceiling, 0) << name;
    EXPECT_FALSE(bench.find(name)->ceiling_from.empty()) << name;
  }
  EXPECT_TRUE(files.list(folder).empty());
  options.size_bytes = int64_t{1} << 60;
  try {
    bench_storage(files, folder, options);
    FAIL() << "wrote an exbibyte";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_space);
  }
  EXPECT_TRUE(files.list(folder).empty());
  files.remove_tree(folder);
}

TEST(CheckpointPartTest, IsTheStateWhereThatFitsAndNeverMoreThanTheBudget) {
  const spec::ModelConfig model = small_model();
  const int64_t state = 12 * spec::param_table(model).count();
  const CheckpointPart whole = part_of_state(model, state);
  EXPECT_EQ(whole.shape.bytes, state);
  EXPECT_EQ(whole.shape.state_bytes, state);
  EXPECT_EQ(whole.shape.tensors, whole.shape.state_tensors);
  for (const int64_t budget : {state / 2, state / 10, int64_t{2000}}) {
    const CheckpointPart part = part_of_state(model, budget);
    EXPECT_LE(part.shape.bytes, budget);
    EXPECT_GT(part.shape.bytes, 0);
    EXPECT_EQ(part.shape.tensors, static_cast<int64_t>(part.tensors.size()));
    EXPECT_EQ(part.shape.bytes, checkpoint::tensor_bytes(part.tensors));
    std::set<std::string> names;
    for (const auto& tensor : part.tensors) EXPECT_TRUE(names.insert(tensor.name).second);
  }
}

}  // namespace
}  // namespace tutti::train
