// GradientReduction of which a rank keeps its shard only (ZeRO 2 and 3, spec/mesh/zero_layers.h): a
// layer's gradients are computed in a buffer that layers take turns in, summed over the ranks that
// hold the same parameters while the layers below are still computed, and added to the shard.
//
// The first micro-batch of a step is reduced straight into the shard, in the same order of ranks as
// gradients of ZeRO 0 and 1, so its bits are theirs; later ones are added one by one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"
#include "tutti/model/memory.h"
#include "tutti/parallel/gradient_reduction.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/model/params.h"

namespace tutti::parallel {

class LayerGradients : public GradientReduction {
 public:
  // `tied`: the parameter that the first and the last pipeline stage both hold; empty: none here.
  LayerGradients(const spec::ParamLayout& layout, const spec::Mesh& mesh, const Ranks& ranks,
                 const model::Memory& memory, const std::string& tied = {},
                 int64_t bucket_elements = spec::kBucketElements);

  void open(engine::Stream& stream, int64_t layer) override;
  void reduce(engine::Stream& stream, int64_t layer) override;
  void finish(engine::Stream& stream) override;
  void sum_tied(engine::Stream& stream) override;

 private:
  enum class State { free, open, on_its_way };
  struct Piece {
    comm::Group* group = nullptr;  // null: this rank alone
    engine::Vector all;            // of the buffer
    engine::Vector mine;           // of it, what this rank keeps
    engine::Vector shard;          // where
    comm::Ticket ticket;
  };
  struct Range {
    float* first = nullptr;
    int64_t count = 0;
  };
  struct Layer {
    spec::ZeroLayer zero_layer;
    std::vector<Piece> pieces;
    std::vector<Range> gaps;  // of the buffer, that no gradient is written to
    State state = State::free;
    bool first = true;  // of the step
  };
  Layer* find(int64_t layer);  // null: nothing of it is trained
  void settle(engine::Stream& stream, Layer& layer);

  std::vector<Layer> layers_;
  comm::Group* pipeline_ends_ = nullptr;
  std::vector<engine::Vector> tied_;  // this rank's slices of the table, alike on both ends
};

}  // namespace tutti::parallel
