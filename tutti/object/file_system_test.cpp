#include "tutti/object/file_system.h"

#include <gtest/gtest.h>

#include <functional>

#include "tutti/base/error.h"
#include "tutti/base/fetched_file.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/object/testing/fake_store.h"

namespace tutti::object {
namespace {

class FileSystemTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& bytes) {
    const auto file = files_->create(path);
    file->append(bytes.data(), bytes.size());
    file->close();
  }
  ErrorKind kind_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.kind();
    }
    ADD_FAILURE() << "no error";
    return ErrorKind::diverged;
  }

  std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
  MemoryFileSystem local_;
  std::unique_ptr<RoutedFileSystem> files_ =
      files_over(store_, local_, 2, {.part_bytes = 1 << 20, .parallel = 2});
};

TEST_F(FileSystemTest, PathsLeadToTheStoreOrToTheMachine) {
  files_->create_directories("s3://bucket/run");
  files_->create_directories("run");
  write("s3://bucket/run/a", "far");
  write("run/a", "near");
  EXPECT_EQ(read_file(*files_, "s3://bucket/run/a"), "far");
  EXPECT_EQ(read_file(*files_, "run/a"), "near");
  EXPECT_EQ(read_file(local_, "run/a"), "near");
  EXPECT_EQ(store_->objects().size(), 1U);
  EXPECT_EQ(object_store(*files_, "run/a"), nullptr);
  EXPECT_EQ(object_store(*files_, "s3://bucket"), files_.get());
  EXPECT_EQ(object_store(local_, "s3://bucket"), nullptr);
}

TEST_F(FileSystemTest, AMachineWithoutCredentialsStillReadsItsFiles) {
  StoreOptions options;
  options.transport = store_;
  options.environment = [](const std::string&) { return std::nullopt; };
  RoutedFileSystem files(local_, options);
  files.create_directories("run");
  EXPECT_TRUE(files.is_directory("run"));
  EXPECT_EQ(kind_of([&] { files.exists("s3://bucket/a"); }), ErrorKind::usage);
}

TEST_F(FileSystemTest, FoldersAreWhatKeysShare) {
  write("s3://bucket/run/step-1/shard", "12345");
  write("s3://bucket/run/step-1/manifest", "1");
  write("s3://bucket/run/notes", "12");
  write("s3://bucket/running", "123");
  EXPECT_TRUE(files_->exists("s3://bucket/run"));
  EXPECT_TRUE(files_->is_directory("s3://bucket/run"));
  EXPECT_TRUE(files_->is_directory("s3://bucket"));
  EXPECT_FALSE(files_->is_directory("s3://bucket/run/notes"));
  EXPECT_FALSE(files_->exists("s3://bucket/ru"));
  const auto entries = files_->list("s3://bucket/run/");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].name, "notes");
  EXPECT_EQ(entries[0].size_bytes, 2);
  EXPECT_FALSE(entries[0].is_directory);
  EXPECT_EQ(entries[1].name, "step-1");
  EXPECT_TRUE(entries[1].is_directory);
  EXPECT_EQ(files_->size_bytes("s3://bucket/run/step-1/shard"), 5);
  files_->remove_tree("s3://bucket/run");
  EXPECT_EQ(store_->objects().size(), 1U);  // s3://bucket/running
  EXPECT_TRUE(files_->list("s3://bucket/run").empty());
  files_->remove_tree("s3://bucket/run");  // no error when absent
}

TEST_F(FileSystemTest, WhatAnObjectCannotDoIsUnsupportedOrUsage) {
  write("s3://bucket/a", "a");
  EXPECT_EQ(kind_of([&] { files_->open_append("s3://bucket/a"); }), ErrorKind::unsupported);
  EXPECT_EQ(kind_of([&] { files_->rename("s3://bucket/a", "s3://bucket/b"); }),
            ErrorKind::unsupported);
  EXPECT_EQ(kind_of([&] { files_->remove_tree("s3://bucket"); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { files_->create("s3://bucket"); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { files_->create("s3://B/a"); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { read_file(*files_, "s3://bucket/none"); }), ErrorKind::not_found);
  EXPECT_EQ(kind_of([&] { files_->is_directory("s3://nowhere/a"); }), ErrorKind::not_found);
  files_->sync_directory("s3:");  // what loops over parents meets
  EXPECT_EQ(files_->resolve("s3://bucket/a"), "s3://bucket/a");
}

TEST_F(FileSystemTest, AtomicWritesNeedNoOtherName) {
  write_file_atomic(*files_, "s3://bucket/a", "one");
  write_file_atomic(*files_, "s3://bucket/a", "two");
  EXPECT_EQ(store_->objects(), (std::map<std::string, std::string>{{"bucket/a", "two"}}));
}

TEST_F(FileSystemTest, LargeObjectsAreFetchedIntoALocalFile) {
  std::string bytes(5 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 >> 3);
  write("s3://bucket/large", bytes);
  EXPECT_EQ(files_->map("s3://bucket/large")->bytes(), bytes);
}

TEST_F(FileSystemTest, OnDemandOnlyWhatIsAskedForIsRead) {
  std::string bytes(1 << 20, 'x');
  bytes[700'000] = 'y';
  write("s3://bucket/large", bytes);
  const int64_t before = store_->bytes_read();
  const auto file = map_on_demand(*files_, "s3://bucket/large");
  EXPECT_TRUE(is_fetched(*file));
  EXPECT_EQ(file->bytes().size(), bytes.size());
  EXPECT_EQ(store_->bytes_read(), before);
  fetch({{file.get(), 700'000, 2}, {file.get(), 5, 1}});
  EXPECT_EQ(file->bytes().substr(699'999, 4), std::string_view("\0yx\0", 4));
  EXPECT_EQ(file->bytes()[5], 'x');
  EXPECT_EQ(store_->bytes_read(), before + 3);
  store_->clear_faults();
  store_->fail_request(0, Failure::refused, true);
  EXPECT_EQ(kind_of([&] { fetch({{file.get(), 0, 10}}); }), ErrorKind::io);
  // An ordinary file needs no fetching.
  local_.create("near")->append("abc", 3);
  const auto near = map_on_demand(*files_, "near");
  EXPECT_FALSE(is_fetched(*near));
  fetch({{near.get(), 0, 3}});
  EXPECT_EQ(near->bytes(), "abc");
}

TEST_F(FileSystemTest, OfAllWhoSawAVersionOneReplacesIt) {
  const std::string path = "s3://bucket/m";
  bool may_be_there = true;
  const auto publish = [&](const std::string& bytes, const std::string& version) {
    files_->publish(path, bytes, version, may_be_there);
  };
  EXPECT_EQ(files_->version(path), "");
  publish("one", "");
  EXPECT_EQ(kind_of([&] { publish("two", ""); }), ErrorKind::peer);
  EXPECT_FALSE(may_be_there);
  const std::string first = files_->version(path);
  publish("three", first);
  EXPECT_TRUE(may_be_there);
  EXPECT_NE(files_->version(path), first);
  EXPECT_EQ(kind_of([&] { publish("four", first); }), ErrorKind::peer);
  EXPECT_EQ(read_file(*files_, path), "three");
  const std::string second = files_->version(path);
  files_->remove_file(path);
  EXPECT_EQ(kind_of([&] { publish("five", second); }), ErrorKind::peer);
  EXPECT_FALSE(may_be_there);
}

// OpenStack Swift answers so.
TEST_F(FileSystemTest, AStoreWithoutConditionalWritesIsNamedWithTheRemedy) {
  Response refusal;
  refusal.status = 501;
  refusal.body =
      "<Error><Code>NotImplemented</Code><Message>Conditional object PUTs are not "
      "supported.</Message></Error>";
  store_->answer_with(refusal);
  bool may_be_there = true;
  try {
    files_->publish("s3://bucket/m", "one", "", may_be_there);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    for (const char* said : {"s3://bucket/m", "PUTs are not supported", "checkpoint.store"}) {
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  }
  EXPECT_FALSE(may_be_there);
}

TEST_F(FileSystemTest, UploadsThatAreNeverClosed) {
  const Client client(fake_settings(), store_, without_waiting(1));
  client.begin_upload({"bucket", "run/a"});
  client.begin_upload({"bucket", "run/b"});
  client.begin_upload({"bucket", "other/a"});
  EXPECT_EQ(files_->end_uploads("s3://bucket/run"), 2);
  EXPECT_EQ(store_->open_uploads(), 1);
  files_->remove_tree("s3://bucket/other");
  EXPECT_EQ(store_->open_uploads(), 0);
}

TEST_F(FileSystemTest, UploadsOfOneObject) {
  const Client client(fake_settings(), store_, without_waiting(1));
  for (const char* key : {"c.bin", "c.bin", "c.bin2", "c"}) client.begin_upload({"bucket", key});
  EXPECT_EQ(files_->end_uploads_of("s3://bucket/c.bin"), 2);
  EXPECT_EQ(files_->end_uploads_of("s3://bucket/c.bin"), 0);
  EXPECT_EQ(store_->open_uploads(), 2);
}

}  // namespace
}  // namespace tutti::object
