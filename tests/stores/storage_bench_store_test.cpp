// `tutti bench storage` of an object store, one in memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/object/testing/fake_store.h"
#include "tutti/train/tasks/storage_bench.h"

namespace tutti::train {
namespace {

class StorageBenchInAStore : public ::testing::Test {
 protected:
  StorageBenchInAStore() {
    store_->set_object("bucket/bench/mine", "kept");
    store_->set_object("bucket/benchmarks", "kept too");
    before_ = store_->objects();
    options_.size_bytes = kLeastStorageBytes;
    options_.seconds = 1;
    options_.readers = 3;
    options_.repeats = 2;
    spec::ModelConfig& model = options_.model;
    model.name = "small";
    model.layers = 1;
    model.hidden = 32;
    model.heads = model.kv_heads = 2;
    model.head_dim = 16;
    model.ffn = 128;
    model.vocabulary = 257;
    model.context = 32;
  }

  StorageBench run(int attempts) {
    const auto files = object::files_over(store_, posix_file_system(), attempts);
    return bench_storage(*files, "s3://bucket/bench", options_);
  }

  void expect_as_before() {
    EXPECT_EQ(store_->objects(), before_);
    EXPECT_EQ(store_->open_uploads(), 0);
  }

  const std::shared_ptr<object::FakeStore> store_ = std::make_shared<object::FakeStore>();
  std::map<std::string, std::string> before_;
  StorageBenchOptions options_;
};

TEST_F(StorageBenchInAStore, HasCeilingsForAllAndLeavesNothing) {
  const int64_t read_before = store_->bytes_read();
  const StorageBench bench = run(3);
  EXPECT_TRUE(bench.is_store);
  EXPECT_GT(bench.round_trip_seconds, 0);
  EXPECT_EQ(bench.figures.size(), 13U);
  int64_t read = 0;
  for (const StorageFigure& figure : bench.figures) {
    EXPECT_GT(figure.value, 0) << figure.name;
    EXPECT_GT(figure.ceiling, 0) << figure.name;
    EXPECT_FALSE(figure.ceiling_from.empty()) << figure.name;
    if (figure.name.rfind("read", 0) == 0 || figure.name.rfind("random", 0) == 0 ||
        figure.name == "checkpoint_load") {
      read += figure.bytes;
    }
  }
  // What the figures say was read went over the network; so did what ceilings read.
  EXPECT_GE(store_->bytes_read() - read_before, read);
  expect_as_before();
}

TEST_F(StorageBenchInAStore, WhicheverRequestFailsNothingIsLeft) {
  for (const int64_t request : {0, 1, 2, 3, 5, 8, 13, 40, 80, 150}) {
    store_->fail_request(request, object::Failure::unavailable, false);
    try {
      run(1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io) << request << error.what();
    }
    store_->clear_faults();
    expect_as_before();
  }
}

TEST_F(StorageBenchInAStore, AFullStoreIsAnErrorAndIsLeftAsItWas) {
  store_->set_capacity(6 << 20);
  try {
    run(2);
    FAIL() << "wrote more than fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::no_space);
  }
  expect_as_before();
}

TEST_F(StorageBenchInAStore, AMissingBucketIsAnError) {
  const auto files = object::files_over(store_, posix_file_system(), 2);
  EXPECT_THROW(bench_storage(*files, "s3://nowhere/bench", options_), Error);
}

}  // namespace
}  // namespace tutti::train
