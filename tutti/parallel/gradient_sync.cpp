#include "tutti/parallel/gradient_sync.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/parallel/range.h"
#include "tutti/spec/zero_layers.h"

namespace tutti::parallel {

GradientSync::GradientSync(const spec::ParamLayout& layout, const spec::Mesh& mesh,
                           const Ranks& ranks, engine::Vector gradients, engine::Vector tied,
                           int64_t bucket_elements)
    : ranks_(ranks),
      sharded_(mesh.zero >= 1),
      gradients_(gradients),
      tied_(tied),
      buckets_(spec::buckets(layout, mesh, bucket_elements)) {
  TUTTI_CHECK(gradients.count == layout.trainable_elements, "{} gradients, {} trainable elements",
              gradients.count, layout.trainable_elements);
  // Parameters lie in the order in which their gradients complete, so what is final after a layer
  // ends where the layer's last parameter of a zone ends.
  for (const spec::PlacedParam& placed : layout.params) {
    const int64_t layer = spec::layer_number(placed.name);
    if (layer < 0 || !placed.param.trainable) continue;
    after_layer_.resize(std::max(after_layer_.size(), static_cast<size_t>(layer + 1)));
    Until& until = after_layer_[static_cast<size_t>(layer)];
    int64_t& end = placed.element_offset < layout.expert_offset ? until.shared : until.expert;
    end = std::max(end, placed.element_offset + placed.shard.count());
  }
  started_.assign(buckets_.size(), false);
  tickets_.reserve(buckets_.size());
}

void GradientSync::layer_done(engine::Stream& stream, int64_t layer) {
  if (layer >= 0 && layer < static_cast<int64_t>(after_layer_.size())) {
    start(stream, after_layer_[static_cast<size_t>(layer)]);
  }
}

void GradientSync::finish(engine::Stream& stream) {
  start(stream, {gradients_.count, gradients_.count});
  for (const comm::Ticket& ticket : tickets_) ticket.wait(stream);
  tickets_.clear();
  std::fill(started_.begin(), started_.end(), false);
  // Last: a sum of two has one order. Sums over more ranks may be made in another order on each
  // stage, and the two copies of the table would drift apart.
  if (tied_) ranks_.pipeline_ends->all_reduce(stream, tied_, tied_).wait(stream);
}

bool GradientSync::holds_tied(const spec::Bucket& bucket) const {
  if (!tied_) return false;
  const int64_t first = tied_.as<float>() - gradients_.as<float>();
  return bucket.first < first + tied_.count && first < bucket.first + bucket.count;
}

void GradientSync::start(engine::Stream& stream, const Until& until) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    const spec::Bucket& bucket = buckets_[i];
    const int64_t final_until = bucket.expert ? until.expert : until.shared;
    if (started_[i] || bucket.first + bucket.count > final_until) continue;
    started_[i] = true;
    comm::Group* group = bucket.expert ? ranks_.expert_replicas : ranks_.replicas;
    if (group == nullptr) continue;
    const engine::Vector all = range(gradients_, bucket.first, bucket.count);
    // Slices lie elsewhere on the other stage, so of a tied table every rank gets all.
    if (sharded_ && !holds_tied(bucket)) {
      const engine::Vector mine =
          range(gradients_, bucket.first + group->rank() * bucket.slice(), bucket.slice());
      tickets_.push_back(group->reduce_scatter(stream, all, mine));
    } else {
      tickets_.push_back(group->all_reduce(stream, all, all));
    }
  }
}

}  // namespace tutti::parallel
