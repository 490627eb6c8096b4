// Tensors to save, and a snapshot of them at one point of training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/checkpoint/store/parallel.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"

namespace tutti::checkpoint {

using AppendBytes = std::function<void(const void* data, int64_t bytes)>;

// A contiguous row-major tensor in host memory, or a slice of a larger one. What a Snapshot copies
// may be in the memory of its stream instead.
struct TensorSource {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // of the data; empty for a scalar
  const void* data = nullptr;  // may be null when the tensor is empty
  // For a slice only: shape of the global tensor, index of the slice's first element in it.
  std::vector<int64_t> global_shape;
  std::vector<int64_t> offset;
  // Instead of `data`, for a tensor that is made while it is written: hands all its bytes to
  // `append`, in order. Not for a Snapshot.
  std::function<void(const AppendBytes& append)> stream = {};
};

int64_t tensor_bytes(const TensorSource& tensor);
int64_t tensor_bytes(const std::vector<TensorSource>& tensors);

// Host memory of fixed size, allocated and touched once, so that a copy runs at memory speed.
class Snapshot {
 public:
  // With a stream whose memory is a device's, of tensors there: the copy is pinned, and made by it.
  explicit Snapshot(int64_t capacity_bytes, engine::Stream* stream = nullptr);

  // Copies the tensors; returns them with `data` pointing into the copy, which lives until the next
  // call. They must fit into the capacity.
  std::vector<TensorSource> copy(const std::vector<TensorSource>& tensors,
                                 const ParallelFor& parallel);

 private:
  struct Free {
    void operator()(char* memory) const;
  };
  int64_t capacity_bytes_;
  engine::Stream* stream_ = nullptr;  // null: the tensors are the host's
  std::optional<engine::Arena> pinned_;
  std::unique_ptr<char, Free> own_;
  char* memory_ = nullptr;  // of one of them
};

}  // namespace tutti::checkpoint
