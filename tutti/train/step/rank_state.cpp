#include "tutti/train/step/rank_state.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "tutti/base/hash.h"
#include "tutti/train/session/initialize.h"

namespace tutti::train {
namespace {

int64_t bytes_of(const StateTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), dtype_bytes(tensor.dtype),
                         std::multiplies<>());
}

}  // namespace

RankState::RankState(const spec::Recipe& recipe, const spec::Coordinates& at,
                     const spec::ParamLayout& layout, engine::Stream& stream,
                     const model::Memory& memory, parallel::ShardedWeights& weights,
                     parallel::ShardedAdamw& optimizer)
    : recipe_(recipe),
      at_(at),
      layout_(layout),
      stream_(stream),
      memory_(memory),
      weights_(weights),
      optimizer_(optimizer) {}

void RankState::initialize() {
  std::vector<float> values;
  for (const spec::PlacedParam& placed : layout_.params) {
    if (placed.param.trainable) continue;
    values.resize(static_cast<size_t>(placed.param.padded_count()));
    initialize_parameter({placed.name, placed.param, 0, spec::whole_param(placed.param)},
                         recipe_.train.seed, values.data());
    set_parameter(placed, values.data());
  }
  initialize_trainable();
}

void RankState::initialize_trainable() {
  for (const parallel::OwnedSlice& slice : optimizer_.slices()) {
    for (const engine::Vector* array :
         {&slice.state.master, &slice.state.moment1, &slice.state.moment2}) {
      stream_.zero(array->data, array->bytes());
    }
  }
  std::vector<float> local;
  for (const spec::PlacedParam& placed : layout_.params) {
    if (!placed.param.trainable) break;
    local.resize(static_cast<size_t>(placed.shard.count()));
    initialize_parameter(placed, recipe_.train.seed, local.data());
    write_master(placed, local.data());
  }
}

void RankState::write_master(const spec::PlacedParam& placed, const float* local) {
  const int64_t end = placed.element_offset + placed.shard.count();
  for (const parallel::OwnedSlice& slice : optimizer_.slices()) {
    const int64_t from = std::max(placed.element_offset, slice.shard.first);
    const int64_t until = std::min(end, slice.shard.first + slice.shard.count);
    if (from >= until) continue;
    const engine::Vector& master = slice.state.master;
    char* to =
        static_cast<char*>(master.data) + (from - slice.shard.first) * dtype_bytes(master.dtype);
    const int64_t bytes = (until - from) * dtype_bytes(master.dtype);
    const float* values = local + (from - placed.element_offset);
    if (master.dtype == DType::f32) {
      stream_.transfer(to, values, bytes);
      continue;
    }
    std::vector<bf16> rounded(static_cast<size_t>(until - from));
    std::transform(values, values + (until - from), rounded.begin(), to_bf16);
    stream_.transfer(to, rounded.data(), bytes);
  }
}

void RankState::set_parameter(const spec::PlacedParam& placed, const float* values) {
  std::vector<float> local(static_cast<size_t>(placed.shard.count()), 0.0F);
  spec::visit_runs(placed.param, placed.shard, [&](const spec::ShardRun& run) {
    std::copy_n(values + run.global_first, run.count, local.data() + run.local_first);
  });
  if (placed.param.trainable) {
    write_master(placed, local.data());
    return;
  }
  weights_.write(stream_, placed.element_offset, local.data(), static_cast<int64_t>(local.size()));
}

uint64_t RankState::weights_hash() {
  weights_.wait(stream_);
  const engine::Arena& weights = memory_.arena("weights");
  if (weights.kind() != engine::ArenaKind::device) {
    stream_.synchronize();
    return hash_bytes(weights.data(), static_cast<size_t>(weights.bytes()));
  }
  std::vector<char> here(static_cast<size_t>(weights.bytes()));
  stream_.transfer(here.data(), weights.data(), weights.bytes());
  stream_.synchronize();
  return hash_bytes(here.data(), here.size());
}

void RankState::watch() {
  if (stream_.memory() != engine::ArenaKind::device) optimizer_.watch_state();
}

std::string RankState::damage() {
  if (optimizer_.watch() == nullptr) return "";
  weights_.wait(stream_);
  stream_.synchronize();
  return optimizer_.watch()->damage();
}

void RankState::fetch(const StateTensor& tensor, void* to) {
  stream_.transfer(to, tensor.data, bytes_of(tensor));
  stream_.synchronize();
}

void RankState::store(const StateTensor& tensor, const void* from) {
  stream_.transfer(tensor.data, from, bytes_of(tensor));
  stream_.synchronize();
}

void RankState::add_boxes(std::vector<StateTensor>& out, const std::string& prefix,
                          const spec::PlacedParam& placed, const PartOf& part) const {
  const int64_t end = placed.element_offset + placed.shard.count();
  for (const parallel::OwnedSlice& slice : optimizer_.slices()) {
    const int64_t from = std::max(placed.element_offset, slice.shard.first);
    const int64_t until = std::min(end, slice.shard.first + slice.shard.count);
    if (from >= until) continue;
    const engine::Vector array = part(slice);
    char* data = static_cast<char*>(array.data) +
                 (placed.element_offset - slice.shard.first) * dtype_bytes(array.dtype);
    spec::visit_boxes(
        placed.param, placed.shard, from - placed.element_offset, until - from,
        [&](const spec::ShardBox& box) {
          out.push_back({prefix + placed.name, array.dtype, box.shape,
                         data + box.local_first * dtype_bytes(array.dtype), placed.param.shape,
                         box.offset, saves(placed) && box.copy == 0});
        });
  }
}

std::vector<StateTensor> RankState::tensors() const {
  using Part = engine::Vector optim::AdamwState::*;
  const std::pair<const char*, Part> parts[] = {{"param.", &optim::AdamwState::master},
                                                {"adamw.m.", &optim::AdamwState::moment1},
                                                {"adamw.v.", &optim::AdamwState::moment2}};
  std::vector<StateTensor> tensors;
  for (const auto& [prefix, part] : parts) {
    for (const spec::PlacedParam& placed : layout_.params) {
      if (!placed.param.trainable) break;
      add_boxes(tensors, prefix, placed,
                [part = part](const parallel::OwnedSlice& slice) { return slice.state.*part; });
    }
  }
  return tensors;
}

bool RankState::saves(const spec::PlacedParam& placed) const {
  const spec::Mesh& mesh = recipe_.parallel;
  const bool expert = placed.param.expert && mesh.ep > 1;
  if (placed.name == spec::tied_copy(recipe_, at_)) return false;  // the first stage does
  return mesh.zero >= 1 || spec::replica_rank(mesh, at_, expert) == 0;
}

std::vector<StateTensor> RankState::gradients() const {
  std::vector<StateTensor> tensors;
  for (const spec::PlacedParam& placed : layout_.params) {
    if (!placed.param.trainable) break;
    add_boxes(tensors, "", placed,
              [](const parallel::OwnedSlice& slice) { return slice.state.gradient; });
  }
  return tensors;
}

}  // namespace tutti::train
