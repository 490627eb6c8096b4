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
    : mesh_(recipe.parallel),
      at_(ranks.at),
      model_layers_(recipe.model.layers),
      gathers_layers_(mesh_.zero == 3 && spec::by_layer(mesh_)),
      weights_(memory.vector("weights", "flat", 0, "flat")),
      slices_(spec::weight_slices(layout, mesh_, at_, bucket_elements)) {
  if (mesh_.zero == 0) return;
  const auto group_of = [&](const spec::Bucket& bucket) {
    return bucket.expert ? ranks.expert_replicas : ranks.replicas;
  };
  const std::vector<spec::Bucket> buckets = spec::weight_buckets(layout, mesh_, bucket_elements);
  if (gathers_layers_) {
    for (spec::ZeroLayer& place : spec::zero_layers(layout, mesh_)) {
      const engine::Vector buffer = model::gathered_buffer(memory, place);
      Layer layer;
      for (const spec::Bucket& bucket : buckets) {
        const spec::LayerPart* part = place.part_of(bucket.first);
        if (part == nullptr || part->in_gathered < 0) continue;
        layer.pieces.push_back(pieces_.size());
        pieces_.push_back(
            {group_of(bucket),
             range(weights_, bucket.shard_first, bucket.slice()),
             range(buffer, part->in_gathered + bucket.first - part->first, bucket.count),
             0,
             {}});
      }
      layer.place = std::move(place);
      layers_.push_back(std::move(layer));
    }
    return;
  }
  const bool tied = spec::holds_tied_head(layout);
  const auto add_piece = [&](int64_t number) {
    auto layer = std::find_if(layers_.begin(), layers_.end(),
                              [&](const Layer& one) { return one.place.is(number); });
    if (layer == layers_.end()) {
      layer = layers_.insert(layers_.end(), Layer{});
      layer->place.layer = number;
    }
    if (layer->pieces.empty() || layer->pieces.back() != pieces_.size()) {
      layer->pieces.push_back(pieces_.size());
    }
  };
  for (const spec::Bucket& bucket : buckets) {
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
    pieces_.push_back({group, range(all, first, bucket.slice()), all, bucket.first + first, {}});
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

void ShardedWeights::updated(engine::Stream& stream) { updated(stream, {0, 0, weights_.count}); }

void ShardedWeights::updated(engine::Stream& stream, const spec::ShardSlice& slice) {
  for (Layer& layer : layers_) layer.here = false;
  if (gathers_layers_) return;
  // The first layers are needed first, and lie last.
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    const bool is_of_slice =
        piece->first >= slice.first && piece->first < slice.first + slice.count;
    if (is_of_slice) start(stream, *piece);
  }
}

void ShardedWeights::start(engine::Stream& stream, Piece& piece) {
  piece.ticket = piece.group->all_gather(stream, piece.mine, piece.all);
}

void ShardedWeights::add_forward(int64_t chunk) {
  const int64_t virtual_stage = chunk * mesh_.pp + at_.pp;
  const bool first = virtual_stage == 0;
  const bool last = virtual_stage == mesh_.virtual_stages() - 1;
  const spec::LayerRange range = spec::stage_layers(mesh_, model_layers_, virtual_stage);
  if (first) order_.push_back(find(spec::kEmbeddingLayer));
  for (int64_t i = 0; i < range.count; ++i) order_.push_back(find(range.first + i));
  if (!last) return;
  const size_t head = find(spec::kHeadLayer);
  if (!first || !layers_[head].place.is(spec::kEmbeddingLayer)) order_.push_back(head);
}

void ShardedWeights::add_backward(int64_t chunk) {
  const spec::LayerRange range =
      spec::stage_layers(mesh_, model_layers_, chunk * mesh_.pp + at_.pp);
  for (int64_t i = range.count; i-- > 0;) order_.push_back(find(range.first + i));
}

void ShardedWeights::begin() {
  order_.clear();
  next_ = 0;
  next_started_ = false;
}

void ShardedWeights::begin_step(const std::vector<spec::Action>& actions) {
  if (!gathers_layers_) return;
  begin();
  for (const spec::Action& action : actions) {
    if (action.kind == spec::ActionKind::gather) add_forward(action.chunk);
    if (action.kind == spec::ActionKind::gather_backward) add_backward(action.chunk);
  }
}

void ShardedWeights::begin_forward() {
  if (!gathers_layers_) return;
  begin();
  for (int64_t chunk = 0; chunk < mesh_.vpp; ++chunk) add_forward(chunk);
}

size_t ShardedWeights::find(int64_t layer) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Layer& one) { return one.place.is(layer); });
  TUTTI_CHECK(found != layers_.end(), "layer {} is not of this rank", layer);
  return static_cast<size_t>(found - layers_.begin());
}

void ShardedWeights::start_next(engine::Stream& stream) {
  const size_t number = order_[next_];
  const spec::ZeroLayer& place = layers_[number].place;
  for (Layer& other : layers_) {
    if (std::string_view(other.place.slot) == place.slot && other.place.repeat == place.repeat) {
      other.here = false;
    }
  }
  layers_[number].here = true;
  for (const size_t piece : layers_[number].pieces) start(stream, pieces_[piece]);
  next_started_ = true;
}

void ShardedWeights::need(engine::Stream& stream, int64_t number) {
  const auto found = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Layer& one) { return one.place.is(number); });
  if (!gathers_layers_) {
    // Layers of which nothing is trained are always here.
    if (found != layers_.end()) wait(stream, *found);
    return;
  }
  TUTTI_CHECK(found != layers_.end(), "layer {} is not of this rank", number);
  const auto layer = static_cast<size_t>(found - layers_.begin());
  if (next_ < order_.size() && order_[next_] == layer) {
    if (!next_started_) start_next(stream);
    wait(stream, *found);
    ++next_;
    next_started_ = false;
  }
  TUTTI_CHECK(found->here, "layer {} was not gathered", number);
  if (next_ == order_.size() || next_started_) return;
  const spec::ZeroLayer& next = layers_[order_[next_]].place;
  const bool in_use =
      std::string_view(next.slot) == found->place.slot && next.repeat == found->place.repeat;
  if (!in_use) start_next(stream);
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
