// The arenas that a memory map can have (memory.h says which tensors lie in them): one list, from
// which everything takes what it needs to know of an arena by its name.
#pragma once

#include <string_view>

namespace tutti::spec {

struct ArenaKind {
  std::string_view name;
  const char* what = "";        // in messages about memory that is short
  bool by_micro_batch = false;  // the micro-batch decides its size
  bool forward = false;         // forward passes alone need it: inference, a teacher
  bool transient = false;       // nothing of it is read after a step
  bool own = false;             // no collective reads or writes it
};

inline constexpr ArenaKind kArenas[] = {
    {.name = "weights", .what = "parameters as they are computed with", .forward = true},
    {.name = "gathered", .what = "weights of the layers at work", .transient = true},
    {.name = "narrow", .what = "weights as products in 8 bits read them", .own = true},
    {.name = "frozen", .what = "frozen weights in the format of the products"},
    {.name = "master", .what = "parameters in f32", .own = true},
    {.name = "gradients", .what = "gradients"},
    {.name = "layer_gradients", .what = "gradients of the layers at work", .transient = true},
    {.name = "moment1", .what = "the optimizer's first moments", .own = true},
    {.name = "moment2", .what = "the optimizer's second moments", .own = true},
    {.name = "optimizer_buffers",
     .what = "what of masters and moments is being updated",
     .transient = true},
    {.name = "activations",
     .what = "what layers keep for the backward pass",
     .by_micro_batch = true,
     .forward = true,
     .transient = true},
    {.name = "offloaded_activations",
     .what = "what layers that are not at work keep",
     .by_micro_batch = true,
     .transient = true},
    {.name = "workspace",
     .what = "what the layer at work needs",
     .by_micro_batch = true,
     .forward = true,
     .transient = true},
    {.name = "routing", .what = "counters of routers"},
    {.name = "loss",
     .what = "logits of some rows",
     .by_micro_batch = true,
     .forward = true,
     .transient = true},
    {.name = "batch", .what = "tokens", .by_micro_batch = true},
    {.name = "kernels", .what = "what kernels need beside their operands", .by_micro_batch = true},
};

// Of an arena of a memory map; a teacher's (distill.h) are of the kind that they are named after.
// Aborts when no kind has the name.
const ArenaKind& arena_kind(std::string_view name);

}  // namespace tutti::spec
