// Sums the gradients of the ranks that hold the same parameters, bucket by bucket (spec/zero.h),
// while the layers below are still computed: with ZeRO 0 and 1. (LayerGradients with 2 and 3.)
// The two copies of a tied table get the same bits, in whichever order a group adds up.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/params.h"
#include "tutti/spec/zero.h"

namespace tutti::parallel {

class GradientSync {
 public:
  // gradients: the flat arena, layout.trainable_elements f32. `tied` of them: of a table that first
  // and last stage of a pipeline both have, and both get the sum of (ranks.pipeline_ends); else
  // empty.
  GradientSync(const spec::ParamLayout& layout, const spec::Mesh& mesh, const Ranks& ranks,
               engine::Vector gradients, engine::Vector tied = {},
               int64_t bucket_elements = spec::kBucketElements);

  // The gradients of block `layer` and of all above it are final: starts to sum the buckets that
  // are complete.
  void layer_done(engine::Stream& stream, int64_t layer);

  // All gradients of the step are final. Afterwards (for the stream) they are summed: everywhere,
  // or with ZeRO in the slices of this rank; elsewhere they are undefined then.
  void finish(engine::Stream& stream);

 private:
  struct Until {  // elements that are final, of either zone
    int64_t shared = 0;
    int64_t expert = 0;
  };
  void start(engine::Stream& stream, const Until& until);
  bool holds_tied(const spec::Bucket& bucket) const;

  Ranks ranks_;
  bool sharded_;
  engine::Vector gradients_;
  engine::Vector tied_;
  std::vector<spec::Bucket> buckets_;
  std::vector<Until> after_layer_;
  std::vector<bool> started_;  // per bucket
  std::vector<comm::Ticket> tickets_;
};

}  // namespace tutti::parallel
