#include "tutti/parallel/layer_gradients.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/model/layer_buffers.h"
#include "tutti/parallel/range.h"

namespace tutti::parallel {
namespace {

// out += x, or out = x.
void add(engine::Stream& stream, const engine::Vector& x, const engine::Vector& out, bool first) {
  stream.ops().column_sum(
      stream,
      {.x = engine::matrix(x.data, x.dtype, 1, x.count), .beta = first ? 0.0F : 1.0F, .out = out});
}

// A selection bias lies among what is trained, but has no gradient.
bool has_gradient(const spec::PlacedParam& placed) {
  return placed.param.trainable && placed.param.name != "moe.router.bias";
}

}  // namespace

LayerGradients::LayerGradients(const spec::ParamLayout& layout, const spec::Mesh& mesh,
                               const Ranks& ranks, const model::Memory& memory,
                               const std::string& tied, int64_t bucket_elements)
    : pipeline_ends_(tied.empty() ? nullptr : ranks.pipeline_ends) {
  const engine::Vector shard = memory.vector("gradients", "flat", 0, "flat");
  const std::vector<spec::Bucket> buckets = spec::buckets(layout, mesh, bucket_elements);
  if (pipeline_ends_ != nullptr) {
    const spec::PlacedParam& table = layout.find(tied);
    for (const spec::Bucket& bucket : buckets) {
      const int64_t first = bucket.first - table.element_offset;
      if (first < 0 || first >= table.shard.count()) continue;
      tied_.push_back(range(shard, bucket.shard_first, bucket.slice()));
    }
  }
  for (spec::ZeroLayer& zero_layer : spec::zero_layers(layout, mesh)) {
    if (zero_layer.gradients == 0) continue;
    const engine::Vector buffer = model::gradient_buffer(memory, zero_layer);
    Layer layer;
    for (const spec::Bucket& bucket : buckets) {
      const spec::LayerPart* part = zero_layer.part_of(bucket.first);
      if (part == nullptr) continue;
      Piece piece;
      piece.group = bucket.expert ? ranks.expert_replicas : ranks.replicas;
      piece.all = range(buffer, part->in_gradients + bucket.first - part->first, bucket.count);
      const int64_t mine = piece.group == nullptr ? 0 : piece.group->rank();
      piece.mine = range(piece.all, mine * bucket.slice(), bucket.slice());
      piece.shard = range(shard, bucket.shard_first, bucket.slice());
      layer.pieces.push_back(piece);
    }
    for (const spec::LayerPart& part : zero_layer.parts) {
      if (!part.trainable) continue;
      int64_t next = part.first;
      const auto gap_until = [&](int64_t end) {
        if (next < end) {
          const engine::Vector gap =
              range(buffer, part.in_gradients + next - part.first, end - next);
          layer.gaps.push_back({gap.as<float>(), gap.count});
        }
      };
      for (const spec::PlacedParam& placed : layout.params) {
        if (placed.element_offset < part.first ||
            placed.element_offset >= part.first + part.count || !has_gradient(placed)) {
          continue;
        }
        gap_until(placed.element_offset);
        next = placed.element_offset + placed.shard.count();
      }
      gap_until(part.first + part.count);
    }
    layer.zero_layer = std::move(zero_layer);
    layers_.push_back(std::move(layer));
  }
}

LayerGradients::Layer* LayerGradients::find(int64_t layer) {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Layer& one) { return one.zero_layer.is(layer); });
  return found == layers_.end() ? nullptr : &*found;
}

void LayerGradients::open(engine::Stream& stream, int64_t number) {
  Layer* layer = find(number);
  if (layer == nullptr || layer->state == State::open) return;
  for (Layer& other : layers_) {
    if (std::string_view(other.zero_layer.slot) != layer->zero_layer.slot ||
        other.zero_layer.repeat != layer->zero_layer.repeat) {
      continue;
    }
    TUTTI_CHECK(other.state != State::open, "layer {} needs the buffer that layer {} works in",
                number, other.zero_layer.layer);
    settle(stream, other);
  }
  for (const Range& gap : layer->gaps) {
    stream.zero(gap.first, gap.count * static_cast<int64_t>(sizeof(float)));
  }
  layer->state = State::open;
}

void LayerGradients::reduce(engine::Stream& stream, int64_t number) {
  Layer* layer = find(number);
  TUTTI_CHECK(layer != nullptr, "nothing of layer {} is trained", number);
  TUTTI_CHECK(layer->state == State::open, "layer {} is reduced before it had its buffer", number);
  for (Piece& piece : layer->pieces) {
    if (piece.group == nullptr) {
      add(stream, piece.mine, piece.shard, layer->first);
    } else {
      piece.ticket =
          piece.group->reduce_scatter(stream, piece.all, layer->first ? piece.shard : piece.mine);
    }
  }
  layer->state = State::on_its_way;
}

void LayerGradients::settle(engine::Stream& stream, Layer& layer) {
  if (layer.state == State::free) return;
  for (Piece& piece : layer.pieces) {
    if (piece.group == nullptr) continue;
    piece.ticket.wait(stream);
    piece.ticket = {};
    if (!layer.first) add(stream, piece.mine, piece.shard, false);
  }
  layer.first = false;
  layer.state = State::free;
}

void LayerGradients::finish(engine::Stream& stream) {
  for (Layer& layer : layers_) {
    TUTTI_CHECK(layer.state != State::open, "layer {} was never done", layer.zero_layer.layer);
    settle(stream, layer);
    layer.first = true;
  }
}

void LayerGradients::sum_tied(engine::Stream& stream) {
  comm::Ticket last;  // the calls of a group are done in their order
  for (const engine::Vector& slice : tied_) last = pipeline_ends_->all_reduce(stream, slice, slice);
  last.wait(stream);
}

}  // namespace tutti::parallel
