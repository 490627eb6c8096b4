// Adds up the gradients of what several tensor parallel ranks hold: norms, biases of row-parallel
// projections, learned positions, adapters' replicated halves, and key/value heads of which there
// are fewer than ranks. Each rank has seen only its own rows, or its own query heads, so each has
// a part of them; afterwards all have the same bits.
#pragma once

#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/parallel/ranks.h"
#include "tutti/parallel/sharded_adamw.h"
#include "tutti/spec/model/params.h"

namespace tutti::parallel {

class CommonGradients {
 public:
  // Of the elements that `owned` names, which are the same on all these ranks: what they update.
  CommonGradients(const spec::ParamLayout& layout, const Ranks& ranks,
                  const std::vector<OwnedSlice>& owned);

  // After the sum over data parallel ranks; afterwards (for the stream) it is done.
  void sum(engine::Stream& stream) const;

 private:
  struct Part {
    comm::Group* group;
    engine::Vector gradients;
  };
  comm::Group* tp_;
  std::vector<Part> parts_;
};

}  // namespace tutti::parallel
