// How the ranks that hold the same parameters sum the gradients of a step, part by part as the
// step's list of actions says (spec/schedule/step_list.h), while the layers below are still
// computed: bucket by bucket in the flat arena with ZeRO 0 and 1 (gradient_sync.h), layer by layer
// into shards with ZeRO 2 and 3 (layer_gradients.h).
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::parallel {

class GradientReduction {
 public:
  virtual ~GradientReduction() = default;

  // Before gradients of `layer` are written.
  virtual void open(engine::Stream& /*stream*/, int64_t /*layer*/) {}

  // Starts to sum a part: a bucket, or a layer. Its gradients are final, of the step or of this
  // micro-batch.
  virtual void reduce(engine::Stream& stream, int64_t part) = 0;

  // All parts of the step are under way. Afterwards (for the stream) they are summed: everywhere,
  // or with ZeRO in the slices of this rank; elsewhere they are undefined then.
  virtual void finish(engine::Stream& stream) = 0;

  // After finish(): the gradients of a table that first and last stage of a pipeline both hold,
  // over both (ranks.pipeline_ends). Two terms have one order, so both get the same bits; sums over
  // more ranks may be made in another order on each stage, and the copies would drift apart.
  virtual void sum_tied(engine::Stream& stream) = 0;
};

// Of the gradients in `memory`, which outlives it.
std::unique_ptr<GradientReduction> make_gradient_reduction(const spec::Recipe& recipe,
                                                           const spec::ParamLayout& layout,
                                                           const Ranks& ranks,
                                                           const model::Memory& memory);

}  // namespace tutti::parallel
