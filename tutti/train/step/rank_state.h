// What one rank holds of a model in training: parameters, moments and gradients, set, named, read
// and written. The steps that change them are the trainer's (trainer.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/parallel/ranks.h"
#include "tutti/parallel/sharded_adamw.h"
#include "tutti/parallel/sharded_weights.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::train {

// A named part of the state, for checkpoints: the whole tensor or a box of it, contiguous.
struct StateTensor {
  std::string name;  // "param.<name>", "adamw.m.<name>", "adamw.v.<name>"
  DType dtype = DType::f32;
  std::vector<int64_t> shape;         // of the data
  void* data = nullptr;               // in memory of the trainer's stream
  std::vector<int64_t> global_shape;  // of the whole tensor, without padding
  std::vector<int64_t> offset;        // where the data begins in it
  bool saved = true;                  // by this rank: without ZeRO several hold the same
};

// With several ranks all functions but tensors() and gradients() are collective: every rank calls
// them in the same order.
class RankState {
 public:
  // All of the arguments outlive it.
  RankState(const spec::Recipe& recipe, const spec::Coordinates& at,
            const spec::ParamLayout& layout, engine::Stream& stream, const model::Memory& memory,
            parallel::ShardedWeights& weights, parallel::ShardedAdamw& optimizer);

  // Parameters from the seed: a pure function of (seed, name, element), moments zero. After these
  // three Trainer::state_changed() must be called.
  void initialize();
  // The same of the trainable ones only: the frozen must then be set.
  void initialize_trainable();
  // Copies `values` [logical shape] f32 into a parameter of the layout; a frozen one is rounded to
  // the compute type.
  void set_parameter(const spec::PlacedParam& placed, const float* values);

  // What this rank owns of the trainable parameters and their moments: alone, each of them whole
  // and once. Frozen ones are not state: they come from where the run started.
  std::vector<StateTensor> tensors() const;
  // The same of the gradient of the last step, by parameter name (without "param.").
  std::vector<StateTensor> gradients() const;

  // Bytes of its tensors to and from memory of the host.
  void fetch(const StateTensor& tensor, void* to);
  void store(const StateTensor& tensor, const void* from);

  // XXH3 of the parameters that forward reads: equal on all ranks that hold the same.
  uint64_t weights_hash();

  // From the next Trainer::state_changed() on a step also finds bits that have flipped since the
  // step before in what this rank keeps of the state (parallel::StateWatch), and throws corrupt
  // naming the rank; damage() looks at once and says what it would throw, or nothing. Not where the
  // host does not reach that memory.
  void watch();
  std::string damage();

 private:
  using PartOf = std::function<engine::Vector(const parallel::OwnedSlice&)>;

  bool saves(const spec::PlacedParam& placed) const;
  void write_master(const spec::PlacedParam& placed, const float* local);
  void add_boxes(std::vector<StateTensor>& out, const std::string& prefix,
                 const spec::PlacedParam& placed, const PartOf& part) const;

  const spec::Recipe& recipe_;
  const spec::Coordinates at_;
  const spec::ParamLayout& layout_;
  engine::Stream& stream_;
  const model::Memory& memory_;
  parallel::ShardedWeights& weights_;
  parallel::ShardedAdamw& optimizer_;
};

}  // namespace tutti::train
