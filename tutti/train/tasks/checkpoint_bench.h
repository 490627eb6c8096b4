// Saves and loads of tensors with the names, the number and the proportions of a model's state,
// through the checkpoint store. There is no model: what is saved is made while it is written.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/direct_file.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/store/snapshot.h"
#include "tutti/node/storage_probe.h"
#include "tutti/spec/model/config.h"

namespace tutti::train {

// A part of the state of a model: all tensors, or the first ones, each with its first rows.
struct CheckpointShape {
  std::string model;
  int64_t state_bytes = 0;  // of the whole
  int64_t state_tensors = 0;
  int64_t bytes = 0;  // of the part
  int64_t tensors = 0;
};

// Weights and both moments of AdamW in f32, as far as `budget_bytes` reach; one row at least.
struct CheckpointPart {
  CheckpointShape shape;
  std::vector<checkpoint::TensorSource> tensors;  // without data
};
CheckpointPart part_of_state(const spec::ModelConfig& model, int64_t budget_bytes);

class CheckpointBench {
 public:
  // In `folder`, which the caller removes.
  CheckpointBench(FileSystem& files, std::string folder, const spec::ModelConfig& model,
                  int64_t budget_bytes, node::CheckStop check);

  const CheckpointShape& shape() const { return part_.shape; }
  // Both return bytes and seconds. A save replaces the last one, which is removed before.
  std::pair<int64_t, double> save();
  // Opening it included. `drop`: its files are dropped from the page cache before.
  std::pair<int64_t, double> load(bool drop);

 private:
  FileSystem& files_;
  const std::string folder_;
  CheckpointPart part_;
  const node::CheckStop check_;
  std::string saved_;    // the checkpoint; empty: none
  AlignedBytes memory_;  // where loaded tensors go, group by group
};

}  // namespace tutti::train
