// The mesh of ranks: named axes and one product equation, world = dp * tp * pp * cp. ep divides
// dp * cp (expert parallel ranks are taken from them). Axis = mesh, dim = tensor.
//
// Pipeline schedules: one_f_one_b (interleaved when vpp > 1; Narayanan et al. 2021), zero_bubble
// (ZB-H1 of Qi et al. 2024: weight gradients delayed, the activation memory of 1F1B), gpipe.
#pragma once

#include <cstdint>

namespace tutti::spec {

enum class Axis { tp, cp, dp, pp, ep };
enum class Pipeline { one_f_one_b, zero_bubble, gpipe };

const char* axis_name(Axis axis);  // "tp", ...

struct Mesh {
  int64_t dp = 1;    // data parallel
  int64_t tp = 1;    // tensor parallel (with sequence parallel)
  int64_t pp = 1;    // pipeline stages
  int64_t vpp = 1;   // virtual stages per rank
  int64_t cp = 1;    // context parallel
  int64_t ep = 1;    // expert parallel
  int64_t zero = 0;  // ZeRO stage 0..3, over dp * cp ranks
  // With ep > 1: a rank's capacity of token copies, relative to the balanced load; 0: capacity for
  // any routing.
  int32_t expert_room_percent = 0;
  Pipeline pipeline = Pipeline::one_f_one_b;

  bool operator==(const Mesh&) const = default;
  int64_t world() const { return dp * tp * pp * cp; }
  int64_t virtual_stages() const { return pp * vpp; }
  int64_t size(Axis axis) const;
};

// Ranks that hold the same shard of a parameter, over which gradients are reduced and ZeRO shards:
// dp * cp; of expert parameters dp * cp / ep.
int64_t replicas(const Mesh& mesh, bool expert = false);

// Coordinates of a rank: tp varies fastest, then cp, then dp, then pp.
struct Coordinates {
  int64_t tp = 0, cp = 0, dp = 0, pp = 0;
  bool operator==(const Coordinates&) const = default;
};

Coordinates coordinates(const Mesh& mesh, int64_t rank);
int64_t rank_of(const Mesh& mesh, const Coordinates& at);

// Layers [first, first + count) of virtual stage `stage` of mesh.virtual_stages(). When the stages
// do not divide the layers, the missing ones are taken from the last and first stages, inwards
// alternately, because those also hold the head and the embedding (Llama 3 405B: 126 layers on
// 16 stages are 7, 8 x 14, 7). Virtual stage g lives on pipeline rank g % pp as chunk g / pp.
struct LayerRange {
  int64_t first = 0;
  int64_t count = 0;
  bool operator==(const LayerRange&) const = default;
};
LayerRange stage_layers(const Mesh& mesh, int64_t layers, int64_t stage);

}  // namespace tutti::spec
