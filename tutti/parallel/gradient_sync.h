// GradientReduction with ZeRO 0 and 1: bucket by bucket (spec/mesh/zero.h). The two copies of a
// tied table get the same bits, in whichever order a group adds up.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"
#include "tutti/parallel/gradient_reduction.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/model/params.h"

namespace tutti::parallel {

class GradientSync : public GradientReduction {
 public:
  // gradients: the flat arena, layout.trainable_elements f32. `tied` of them: of a table that first
  // and last stage of a pipeline both have, and both get the sum of (ranks.pipeline_ends); else
  // empty.
  GradientSync(const spec::ParamLayout& layout, const spec::Mesh& mesh, const Ranks& ranks,
               engine::Vector gradients, engine::Vector tied = {},
               int64_t bucket_elements = spec::kBucketElements);

  void reduce(engine::Stream& stream, int64_t bucket) override;
  void finish(engine::Stream& stream) override;
  void sum_tied(engine::Stream& stream) override;

 private:
  bool holds_tied(const spec::Bucket& bucket) const;

  Ranks ranks_;
  bool sharded_;
  engine::Vector gradients_;
  engine::Vector tied_;
  std::vector<spec::Bucket> buckets_;
  std::vector<comm::Ticket> tickets_;
};

}  // namespace tutti::parallel
