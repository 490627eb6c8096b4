#include "tutti/parallel/common_gradients.h"

#include <algorithm>

#include "tutti/base/check.h"

namespace tutti::parallel {

CommonGradients::CommonGradients(const spec::ParamLayout& layout, const Ranks& ranks,
                                 const std::vector<OwnedSlice>& owned)
    : tp_(ranks.layers.tp) {
  if (tp_ == nullptr) return;
  const auto group_of = [&](int64_t copies) {
    return copies == tp_->size() ? tp_ : ranks.tensor_copies;
  };
  const auto add = [&](comm::Group* group, int64_t first, int64_t end) {
    for (const OwnedSlice& slice : owned) {
      const int64_t from = std::max(first, slice.shard.first);
      const int64_t until = std::min(end, slice.shard.first + slice.shard.count);
      if (from >= until) continue;
      float* data = slice.state.gradient.as<float>() + (from - slice.shard.first);
      if (!parts_.empty() && parts_.back().group == group &&
          parts_.back().gradients.as<float>() + parts_.back().gradients.count == data) {
        parts_.back().gradients.count += until - from;
      } else {
        parts_.push_back({group, engine::vector(data, DType::f32, until - from)});
      }
    }
  };
  for (const spec::PlacedParam& placed : layout.params) {
    if (!placed.param.trainable) break;
    spec::visit_runs(placed.param, placed.shard, [&](const spec::ShardRun& run) {
      if (run.copies == 1) return;
      comm::Group* group = group_of(run.copies);
      TUTTI_CHECK(group != nullptr && group->size() == run.copies,
                  "{}: no group of {} tensor parallel ranks with the same heads (ranks_of)",
                  placed.name, run.copies);
      const int64_t first = placed.element_offset + run.local_first;
      add(group, first, first + run.count);
    });
  }
}

void CommonGradients::sum(engine::Stream& stream) const {
  // The calls of one group are done in their order: its last ticket stands for all of them.
  comm::Ticket of_all, of_copies;
  for (const Part& part : parts_) {
    (part.group == tp_ ? of_all : of_copies) =
        part.group->all_reduce(stream, part.gradients, part.gradients);
  }
  of_all.wait(stream);
  of_copies.wait(stream);
}

}  // namespace tutti::parallel
