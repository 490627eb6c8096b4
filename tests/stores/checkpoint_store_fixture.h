// Checkpoints in a store in memory, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/verify.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"
#include "tutti/object/testing/fake_store.h"

namespace tutti::checkpoint {

inline constexpr const char* kFolder = "s3://bucket/run/checkpoints";

inline std::string step_path(int64_t step) { return join_path(kFolder, step_folder_name(step)); }

// The way of one process to the store. Before its request `at` (0: its first) another process does
// something; from request `dies_at` on it is gone.
class Interloper final : public object::Transport {
 public:
  Interloper(std::shared_ptr<object::FakeStore> store, int64_t at, std::function<void()> other,
             int64_t dies_at = INT64_MAX)
      : store_(std::move(store)), at_(at), other_(std::move(other)), dies_at_(dies_at) {}
  object::Response send(const object::Request& request) override {
    const int64_t index = sent_++;
    if (index == at_) other_();
    if (index >= dies_at_) throw object::TransportError("the process is gone", false);
    return store_->send(request);
  }
  bool came() const { return sent_ > at_; }

 private:
  std::shared_ptr<object::FakeStore> store_;
  int64_t at_;
  std::function<void()> other_;
  int64_t dies_at_;
  int64_t sent_ = 0;
};

// A store that gives this answer to conditional writes.
class RefusesConditions final : public object::Transport {
 public:
  RefusesConditions(std::shared_ptr<object::FakeStore> store, int status, const std::string& code)
      : store_(std::move(store)) {
    answer_.status = status;
    answer_.body = "<Error><Code>" + code + "</Code><Message>text</Message></Error>";
  }
  object::Response send(const object::Request& request) override {
    const auto& headers = request.headers;
    return headers.count("if-none-match") + headers.count("if-match") > 0 && request.method == "PUT"
               ? answer_
               : store_->send(request);
  }

 private:
  std::shared_ptr<object::FakeStore> store_;
  object::Response answer_;
};

class CheckpointStore : public testing::Test {
 protected:
  // Parts smaller than a shard: every save has uploads in parts and small objects.
  std::unique_ptr<object::RoutedFileSystem> over(const std::shared_ptr<object::Transport>& store,
                                                 int attempts, int parallel = 0) {
    return object::files_over(store, local_, attempts, {.part_bytes = 300, .parallel = parallel});
  }
  std::unique_ptr<object::RoutedFileSystem> files(int attempts, int parallel = 0) {
    return over(store_, attempts, parallel);
  }
  static void save(FileSystem& files, int64_t step) {
    const FakeRun run(step);
    write_checkpoint(files, kFolder, run.tensors, run.state, small_pieces());
  }
  bool is_whole(FileSystem& files, int64_t step) {
    return verify_checkpoint(files, step_path(step), {}, serially).empty();
  }
  // Objects of the store that no manifest of a listed checkpoint names.
  int64_t leftovers(FileSystem& files) {
    int64_t count = static_cast<int64_t>(store_->objects().size());
    for (const CheckpointInfo& info : list_checkpoints(files, kFolder)) {
      if (!info.valid) continue;
      const std::string path = join_path(info.path, kManifestName);
      count -= 1 + static_cast<int64_t>(parse_manifest(read_file(files, path), path).files.size());
    }
    return count;
  }

  std::shared_ptr<object::FakeStore> store_ = std::make_shared<object::FakeStore>();
  MemoryFileSystem local_;
};

}  // namespace tutti::checkpoint
