#include "tutti/parallel/gradient_sync.h"

#include "tutti/base/check.h"
#include "tutti/parallel/range.h"

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
  tickets_.reserve(buckets_.size());
}

void GradientSync::reduce(engine::Stream& stream, int64_t number) {
  const spec::Bucket& bucket = buckets_[static_cast<size_t>(number)];
  comm::Group* group = bucket.expert ? ranks_.expert_replicas : ranks_.replicas;
  if (group == nullptr) return;  // this rank alone
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

void GradientSync::finish(engine::Stream& stream) {
  for (const comm::Ticket& ticket : tickets_) ticket.wait(stream);
  tickets_.clear();
}

void GradientSync::sum_tied(engine::Stream& stream) {
  if (tied_) ranks_.pipeline_ends->all_reduce(stream, tied_, tied_).wait(stream);
}

bool GradientSync::holds_tied(const spec::Bucket& bucket) const {
  if (!tied_) return false;
  const int64_t first = tied_.as<float>() - gradients_.as<float>();
  return bucket.first < first + tied_.count && first < bucket.first + bucket.count;
}

}  // namespace tutti::parallel
