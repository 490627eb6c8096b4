// Activation recomputation: which activations of a layer are dropped after its forward pass and
// recomputed before its backward pass. Less memory, more work, the same bits (a repeated operation
// gets the same inputs).
//
// selective drops parts and recomputes them from the kept activations; a part contains what it
// names:
//   norms       the outputs of both norms; recomputes two passes over memory
//   attention   queries, keys and values, and the attention's output; recomputes their projection,
//               RoPE and the attention (latent attention: the projections up from the ranks)
//   core        of these only the attention's output; recomputes the attention
//   mlp         input and output of the activation; recomputes the first projection and the
//   activation activation  of these only the output; recomputes the activation
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
// Only in published implementations: every other product of a block (profile torchtitan).
inline constexpr Parts kPartAlternate = 1U << 5;

struct Recompute {
  bool operator==(const Recompute&) const = default;
  RecomputeMode mode = RecomputeMode::none;
  Parts parts = 0;     // selective: which; 0: the profile's own choice ("default")
  int64_t layers = 0;  // of each virtual stage, the first ones; 0: all ("all")

  // Whether layer `index` of its virtual stage recomputes.
  bool covers(int64_t index) const {
    return mode != RecomputeMode::none && (layers == 0 || index < layers);
  }
};

// For display, of profile tutti: "selective (norms, activation), first 4 layers".
std::string recompute_text(const Recompute& recompute);

}  // namespace tutti::spec
