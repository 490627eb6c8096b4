// Layers as ZeRO 2 and 3 handle them. A rank then holds a shard only of the gradients (and of the
// weights); what a layer computes with is whole, in a buffer that layers share: its gradients until
// they are reduced (arena "layer_gradients"), its weights from when they were gathered (arena
// "gathered"). Both arenas have slot "block", twice, for the blocks of a rank in turn, so that one
// is on its way while the other computes; and slot "outer" for what is before and after the blocks.
// Embedding and head take turns in it; where they share their table they are one layer. On several
// pipeline stages the token table is a part by itself, so that first and last stage, where both
// have it, divide it alike.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// Numbers of layers that are not blocks.
inline constexpr int64_t kEmbeddingLayer = -1;
inline constexpr int64_t kHeadLayer = -2;  // with the final norm

// "blocks.7.norm1.weight" is of layer 7, "final_norm.weight" of kHeadLayer.
int64_t layer_number(std::string_view parameter);

// Whether the rank's head is its token table.
bool holds_tied_head(const ParamLayout& layout);

// Whether gradients (and weights) are whole one layer at a time only.
bool by_layer(const Mesh& mesh);

// Elements [first, first + count) of the flat arenas. Each is divided among its `ways` ranks on its
// own, and padded so that it can be.
struct LayerPart {
  int64_t first = 0;
  int64_t count = 0;
  int64_t ways = 1;
  bool expert = false;
  bool trainable = true;
  int64_t in_gathered = -1;   // where it begins in the layer's slot of "gathered"; -1: it is not
                              // there, because this rank's shard is all of it
  int64_t in_gradients = -1;  // in "layer_gradients"; -1: frozen
};

struct ZeroLayer {
  int64_t layer = 0;             // a block's number, kEmbeddingLayer or kHeadLayer
  bool joined = false;           // the embedding, and the head too
  const char* slot = "";         // "block" or "outer"
  int64_t repeat = 0;            // of that slot
  int64_t gathered = 0;          // elements in the slot of "gathered"
  int64_t gradients = 0;         // in that of "layer_gradients"
  std::vector<LayerPart> parts;  // ascending

  bool is(int64_t number) const { return layer == number || (joined && number == kHeadLayer); }
  // The part that holds element `first` of the flat arenas; null when none does.
  const LayerPart* part_of(int64_t first) const;
};

// Of a layout made for `mesh`, in forward order.
std::vector<ZeroLayer> zero_layers(const ParamLayout& layout, const Mesh& mesh);

// The same without names, on pipeline rank `stage`: elements, padded by layer.
struct ZeroSizes {
  int64_t shared = 0;  // trainable
  int64_t expert = 0;
  int64_t frozen = 0;
  int64_t shard = 0;         // what a rank owns of the trainable ones
  int64_t frozen_shard = 0;  // and of the frozen ones, with ZeRO 3
  int64_t block_slots = 0;   // at most 2
  int64_t gathered_block = 0;
  int64_t gathered_outer = 0;
  int64_t gradients_block = 0;
  int64_t gradients_outer = 0;
  // What a forward pass over all layers gathers with ZeRO 3, and a backward pass over the blocks.
  struct Gathered {
    int64_t shared = 0;  // and frozen
    int64_t expert = 0;
  };
  Gathered forward, backward;

  int64_t trainable() const { return shared + expert; }
  int64_t elements() const { return trainable() + frozen; }
};
ZeroSizes zero_sizes(const ParamTable& table, const Recipe& recipe, int64_t stage);

}  // namespace tutti::spec
