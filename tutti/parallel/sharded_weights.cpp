#include "tutti/parallel/sharded_weights.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/model/layer_buffers.h"
#include "tutti/parallel/range.h"

namespace tutti::parallel {

ShardedWeights::ShardedWeights(const spec::Recipe& recipe, const spec::ParamLayout& layout,
                               const Ranks& ranks, const model::Memory& memory,
                               int64_t bucket_elements)
    : gathers_layers_(recipe.parallel.zero == 3 && spec::by_layer(recipe.parallel)),
      weights_(memory.vector("weights", "flat", 0, "flat")),
      slices_(spec::weight_slices(layout, recipe.parallel, ranks.at, bucket_elements)) {
  const spec::Mesh& mesh = recipe.parallel;
  if (mesh.zero == 0) return;
  const auto group_of = [&](const spec::Bucket& bucket) {
    return bucket.expert ? ranks.expert_replicas : ranks.replicas;
  };
  const std::vector<spec::Bucket> buckets = spec::weight_buckets(layout, mesh, bucket_elements);
  if (gathers_layers_) {
    for (spec::ZeroLayer& zero_layer : spec::zero_layers(layout, mesh)) {
      const engine::Vector buffer = model::gathered_buffer(memory, zero_layer);
      Layer layer;
      for (const spec::Bucket& bucket : buckets) {
        const spec::LayerPart* part = zero_layer.part_of(bucket.first);
        if (part == nullptr || part->in_gathered < 0) continue;
        layer.pieces.push_back(pieces_.size());
        pieces_.push_back(
            {group_of(bucket),
             range(weights_, bucket.shard_first, bucket.slice()),
             range(buffer, part->in_gathered + bucket.first - part->first, bucket.count),
             0,
             {}});
      }
      layer.zero_layer = std::move(zero_layer);
      layers_.push_back(std::move(layer));
    }
    return;
  }
  const bool tied = spec::holds_tied_head(layout);
  const auto add_piece = [&](int64_t number) {
    auto layer = std::find_if(layers_.begin(), layers_.end(),
                              [&](const Layer& one) { return one.zero_layer.is(number); });
    if (layer == layers_.end()) {
      layer = layers_.insert(layers_.end(), Layer{});
      layer->zero_layer.layer = number;
    }
    if (layer->pieces.empty() || layer->pieces.back() != pieces_.size()) {
      layer->pieces.push_back(pieces_.size());
    }
  };
  for (size_t i = 0; i < buckets.size(); ++i) {
    const spec::Bucket& bucket = buckets[i];
    comm::Group* group = group_of(bucket);
    if (group == nullptr) continue;
    const engine::Vector all = range(weights_, bucket.first, bucket.count);
    for (const spec::PlacedParam& placed : layout.params) {
      const int64_t end = placed.element_offset + placed.shard.count();
      if (end <= bucket.first || placed.element_offset >= bucket.first + bucket.count) continue;
      const int64_t number = spec::layer_number(placed.name);
      add_piece(number);
      // A tied head reads the token table.
      if (number == spec::kEmbeddingLayer && tied) add_piece(spec::kHeadLayer);
    }
    const int64_t first = group->rank() * bucket.slice();
    pieces_.push_back({group, range(all, first, bucket.slice()), all, static_cast<int64_t>(i), {}});
  }
}

namespace {

// Of the host's f32 values; done with them on return.
void write_weights(engine::Stream& stream, const float* values, const engine::Vector& out) {
  if (out.dtype == DType::f32) return stream.transfer(out.data, values, out.bytes());
  std::vector<bf16> rounded(static_cast<size_t>(out.count));
  std::transform(values, values + out.count, rounded.begin(), to_bf16);
  stream.transfer(out.data, rounded.data(), out.bytes());
}

}  // namespace

void ShardedWeights::write(engine::Stream& stream, int64_t first, const float* values,
                           int64_t count) {
  for (const spec::ShardSlice& slice : slices_) {
    const int64_t from = std::max(first, slice.first);
    const int64_t until = std::min(first + count, slice.first + slice.count);
    if (from >= until) continue;
    const engine::Vector out =
        range(weights_, slice.shard_first + from - slice.first, until - from);
    write_weights(stream, values + (from - first), out);
  }
}

void ShardedWeights::changed(engine::Stream& stream) {
  for (Layer& layer : layers_) layer.here = false;
  if (gathers_layers_) return;
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) start(stream, *piece);
}

void ShardedWeights::start(engine::Stream& stream, Piece& piece) {
  piece.ticket = piece.group->all_gather(stream, piece.mine, piece.all);
}

ShardedWeights::Layer* ShardedWeights::find(int64_t layer) {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Layer& one) { return one.zero_layer.is(layer); });
  return found == layers_.end() ? nullptr : &*found;
}

void ShardedWeights::gather(engine::Stream& stream, int64_t part) {
  if (!gathers_layers_) {
    const auto piece = std::find_if(pieces_.begin(), pieces_.end(),
                                    [&](const Piece& one) { return one.bucket == part; });
    if (piece != pieces_.end()) start(stream, *piece);  // else this rank has all of it
    return;
  }
  Layer* layer = find(part);
  TUTTI_CHECK(layer != nullptr, "layer {} is not of this rank", part);
  for (Layer& other : layers_) {
    if (std::string_view(other.zero_layer.slot) == layer->zero_layer.slot &&
        other.zero_layer.repeat == layer->zero_layer.repeat) {
      other.here = false;
    }
  }
  layer->here = true;
  for (const size_t piece : layer->pieces) start(stream, pieces_[piece]);
}

void ShardedWeights::need(engine::Stream& stream, int64_t number) {
  const Layer* layer = find(number);
  if (layer == nullptr) return;  // nothing of it is divided
  TUTTI_CHECK(!gathers_layers_ || layer->here || layer->pieces.empty(), "layer {} was not gathered",
              number);
  wait(stream, *layer);
}

void ShardedWeights::wait(engine::Stream& stream, const Layer& layer) {
  for (const size_t piece : layer.pieces) {
    pieces_[piece].ticket.wait(stream);
    pieces_[piece].ticket = {};
  }
}

void ShardedWeights::wait(engine::Stream& stream) {
  for (Piece& piece : pieces_) {
    piece.ticket.wait(stream);
    piece.ticket = {};
  }
}

}  // namespace tutti::parallel
