// Which activations of a layer are dropped after its forward pass and computed again before its
// backward pass: less memory, more work, the same bits (a repeated operation gets the same inputs).
//
// selective drops parts and computes them from what is kept; a part contains what it names:
//   norms       the outputs of both norms; again: two passes over memory
//   attention   queries, keys and values, and the attention's output; again: their projection,
//               rotation and the attention (latent attention: the projections up from the ranks)
//   core        of these the attention's output only; again: the attention
//   mlp         both sides of the activation; again: the first projection and the activation
//   activation  of these its output only; again: the activation
// full keeps the layer's input only. spec/memory/memory.h lists the bytes of each.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::spec {

enum class RecomputeMode { none, selective, full };

using Parts = unsigned;
inline constexpr Parts kPartNorms = 1U << 0;
inline constexpr Parts kPartAttention = 1U << 1;
inline constexpr Parts kPartCore = 1U << 2;
inline constexpr Parts kPartMlp = 1U << 3;
inline constexpr Parts kPartActivation = 1U << 4;
// Of published implementations only: every other product of a block (profile torchtitan).
inline constexpr Parts kPartAlternate = 1U << 5;

struct Recompute {
  bool operator==(const Recompute&) const = default;
  RecomputeMode mode = RecomputeMode::none;
  Parts parts = 0;     // selective: which; 0: what the profile does by itself ("default")
  int64_t layers = 0;  // the first so many of each virtual stage; 0: all of them ("all")

  // Whether layer `index` of its virtual stage recomputes.
  bool covers(int64_t index) const {
    return mode != RecomputeMode::none && (layers == 0 || index < layers);
  }
};

// For people, of profile tutti: "selective (norms, activation), first 4 layers".
std::string recompute_text(const Recompute& recompute);

}  // namespace tutti::spec
