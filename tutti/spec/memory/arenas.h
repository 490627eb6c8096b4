// The arenas of a memory map (memory.h lists their tensors): the single list of their properties,
// looked up by name.
#pragma once

#include <string_view>

namespace tutti::spec {

struct ArenaKind {
  std::string_view name;
  const char* what = "";        // in out-of-memory messages
  bool by_micro_batch = false;  // its size depends on the micro-batch
  bool forward = false;         // forward-only models need it: inference, a teacher
  bool transient = false;       // not read after the step
  bool own = false;             // no collective reads or writes it
};

inline constexpr ArenaKind kArenas[] = {
    {.name = "weights", .what = "weights in the compute type", .forward = true},
    {.name = "gathered", .what = "gathered weights of the active layers", .transient = true},
    {.name = "narrow", .what = "quantized weights", .own = true},
    {.name = "frozen", .what = "frozen weights in the products' format"},
    {.name = "master", .what = "f32 master weights", .own = true},
    {.name = "gradients", .what = "gradients"},
    {.name = "layer_gradients", .what = "gradients of the active layers", .transient = true},
    {.name = "moment1", .what = "first moments of the optimizer", .own = true},
    {.name = "moment2", .what = "second moments of the optimizer", .own = true},
    {.name = "optimizer_buffers",
     .what = "buffers for updates of offloaded state",
     .transient = true},
    {.name = "activations",
     .what = "activations kept for the backward pass",
     .by_micro_batch = true,
     .forward = true,
     .transient = true},
    {.name = "offloaded_activations",
     .what = "activations offloaded to the host",
     .by_micro_batch = true,
     .transient = true},
    {.name = "workspace",
     .what = "workspace of the active layer",
     .by_micro_batch = true,
     .forward = true,
     .transient = true},
    {.name = "routing", .what = "router statistics"},
    {.name = "loss", .what = "logits", .by_micro_batch = true, .forward = true, .transient = true},
    {.name = "batch", .what = "tokens", .by_micro_batch = true},
    {.name = "kernels", .what = "workspace of kernels", .by_micro_batch = true},
};

// The kind of an arena of a memory map; a teacher's arena "teacher.NAME" (distill.h) has the kind
// of NAME. Aborts for an unknown name.
const ArenaKind& arena_kind(std::string_view name);

}  // namespace tutti::spec
