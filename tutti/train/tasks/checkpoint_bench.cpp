#include "tutti/train/tasks/checkpoint_bench.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/page_cache.h"
#include "tutti/checkpoint/store/writer.h"
#include "tutti/spec/model/params.h"

namespace tutti::train {
namespace {

// Tensors are loaded in groups of this size, so that memory does not bound what is measured.
constexpr int64_t kLoadBytes = int64_t{256} << 20;

// All bytes of a tensor, from a chunk of them.
void stream_bytes(int64_t bytes, const node::CheckStop& check,
                  const checkpoint::AppendBytes& append) {
  for (int64_t at = 0; at < bytes; at += node::kStreamBytes) {
    if (check) check();
    append(node::incompressible_chunk().data(), std::min(node::kStreamBytes, bytes - at));
  }
}

}  // namespace

CheckpointPart part_of_state(const spec::ModelConfig& model, int64_t budget_bytes) {
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(model));
  CheckpointPart part;
  part.shape.model = model.name;
  const std::vector<std::string> prefixes = {"param.", "adamw.m.", "adamw.v."};
  for (const spec::PlacedParam& placed : layout.params) {
    part.shape.state_bytes += 3 * 4 * placed.param.count();
    part.shape.state_tensors += 3;
  }
  const double share = std::min(
      1.0, static_cast<double>(budget_bytes) / static_cast<double>(part.shape.state_bytes));
  for (const std::string& prefix : prefixes) {
    for (const spec::PlacedParam& placed : layout.params) {
      checkpoint::TensorSource tensor;
      tensor.name = prefix + placed.name;
      tensor.shape = placed.param.shape;
      if (share < 1 && !tensor.shape.empty()) {
        int64_t& rows = tensor.shape.front();
        rows = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rows) * share));
      }
      const int64_t bytes = checkpoint::tensor_bytes(tensor);
      if (part.shape.bytes + bytes > budget_bytes && part.shape.tensors > 0) return part;
      part.shape.bytes += bytes;
      ++part.shape.tensors;
      part.tensors.push_back(std::move(tensor));
    }
  }
  return part;
}

CheckpointBench::CheckpointBench(FileSystem& files, std::string folder,
                                 const spec::ModelConfig& model, int64_t budget_bytes,
                                 node::CheckStop check)
    : files_(files),
      folder_(std::move(folder)),
      part_(part_of_state(model, budget_bytes)),
      check_(std::move(check)) {
  int64_t largest = 0;
  for (checkpoint::TensorSource& tensor : part_.tensors) {
    const int64_t bytes = checkpoint::tensor_bytes(tensor);
    largest = std::max(largest, bytes);
    tensor.stream = [this, bytes](const checkpoint::AppendBytes& append) {
      stream_bytes(bytes, check_, append);
    };
  }
  // Touched once, as a trainer's memory is.
  const int64_t memory = std::max(largest, std::min(kLoadBytes, part_.shape.bytes));
  memory_ = make_aligned_bytes(memory);
  std::memset(memory_.get(), 0, static_cast<size_t>(memory));
}

std::pair<int64_t, double> CheckpointBench::save() {
  if (!saved_.empty()) files_.remove_tree(saved_);
  const double begin = monotonic_seconds();
  const checkpoint::Written written =
      checkpoint::write_checkpoint(files_, folder_, part_.tensors, {});
  saved_ = written.path;
  return {part_.shape.bytes, monotonic_seconds() - begin};
}

std::pair<int64_t, double> CheckpointBench::load(bool drop) {
  if (drop) {
    for (const DirectoryEntry& file : files_.list(saved_)) {
      drop_cached_file(join_path(saved_, file.name));
    }
  }
  const int64_t capacity = std::min(kLoadBytes, part_.shape.bytes);
  const double begin = monotonic_seconds();
  checkpoint::Reader reader(files_, saved_);
  std::vector<checkpoint::TensorTarget> group;
  int64_t used = 0;
  const auto load_group = [&] {
    if (check_) check_();
    reader.load(group);
    group.clear();
    used = 0;
  };
  for (const checkpoint::TensorSource& tensor : part_.tensors) {
    const int64_t bytes = checkpoint::tensor_bytes(tensor);
    if (used + bytes > capacity && !group.empty()) load_group();
    group.push_back({tensor.name, tensor.dtype, tensor.shape, memory_.get() + used});
    used += bytes;
  }
  if (!group.empty()) load_group();
  return {part_.shape.bytes, monotonic_seconds() - begin};
}

}  // namespace tutti::train
