// A small training state for the tests of this folder: tensors of odd types and shapes whose every
// byte depends on the step, so that a mix of two steps cannot go unnoticed.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/store/writer.h"

namespace tutti::checkpoint {

class FakeRun {
 public:
  explicit FakeRun(int64_t step) {
    state.step = step;
    state.seed = 0xfedcba9876543210U;
    state.next_sample = step * 12;
    state.validation_loss = 4.0 - 0.125 * static_cast<double>(step);
    state.recipe_hash = "0123456789abcdef";
    state.model = {{"architecture", "gpt"}, {"layers", 2}, {"width", 48}};
    state.training = {{"tokens", step * 768}, {"best_loss", 0.1}, {"optimizer_step", step}};
    add("matrix", DType::f32, {7, 24});
    add("half", DType::bf16, {3, 5});
    add("bytes", DType::u8, {3});
    add("empty", DType::f32, {0, 4});
    add("scalar", DType::f32, {});
    add("tokens", DType::i32, {2, 3, 2});
    add("wide", DType::f64, {1});
  }

  void add(const std::string& name, DType dtype, const std::vector<int64_t>& shape) {
    TensorSource tensor{name, dtype, shape, nullptr, {}, {}};
    std::string bytes(static_cast<size_t>(tensor_bytes(tensor)), '\0');
    const uint64_t key = stream_key(static_cast<uint64_t>(state.step), "fake run", name);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(random_u64(key, i));
    data_.push_back(std::move(bytes));
    tensors.push_back(std::move(tensor));
    for (size_t i = 0; i < data_.size(); ++i) tensors[i].data = data_[i].data();
  }
  const std::string& data(size_t i) const { return data_[i]; }

  State state;
  std::vector<TensorSource> tensors;

 private:
  std::vector<std::string> data_;
};

// Empty when the checkpoint holds exactly FakeRun(step of its manifest), else what differs.
inline std::string difference_from_fake_run(Reader& reader) {
  const FakeRun run(reader.manifest().state.step);
  const State& state = reader.manifest().state;
  if (state.next_sample != run.state.next_sample || state.training != run.state.training ||
      state.model != run.state.model || state.seed != run.state.seed) {
    return "state";
  }
  if (reader.manifest().tensors.size() != run.tensors.size()) return "number of tensors";
  std::vector<std::string> loaded;
  std::vector<TensorTarget> targets;
  for (const TensorSource& tensor : run.tensors) {
    loaded.emplace_back(static_cast<size_t>(tensor_bytes(tensor)), 'x');
  }
  for (size_t i = 0; i < loaded.size(); ++i) {
    const TensorSource& tensor = run.tensors[i];
    targets.push_back({tensor.name, tensor.dtype, tensor.shape, loaded[i].data()});
  }
  reader.load(targets);
  for (size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i] != run.data(i)) return run.tensors[i].name;
  }
  return {};
}

// In these tests one thread is faster than several.
inline void serially(int64_t count, const std::function<void(int64_t)>& body) {
  for (int64_t i = 0; i < count; ++i) body(i);
}

// Chunks smaller than a tensor and shards smaller than the state: all seams are in small files too.
inline WriteOptions small_pieces() { return {.max_shard_bytes = 700, .chunk_bytes = 100}; }

// Step of the newest valid checkpoint, -1 when there is none; fails when its content is not that
// step's.
inline int64_t newest_step(FileSystem& files, const std::string& folder) {
  std::optional<Reader> reader = newest_valid(files, folder, {}, serially);
  if (!reader) return -1;
  EXPECT_EQ(difference_from_fake_run(*reader), "");
  return reader->manifest().state.step;
}

template <typename Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorKind::io, "no error");
}

inline testing::AssertionResult says(const Error& error, ErrorKind kind, const std::string& part) {
  if (error.kind() == kind && std::string(error.what()).find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << error_kind_name(error.kind()) << ": " << error.what()
                                     << "\nwanted " << error_kind_name(kind) << ": " << part;
}

}  // namespace tutti::checkpoint
