// Binds products below 16 bits to their buffers in memory.
#include <string>

#include "tutti/base/rng.h"
#include "tutti/model/bind.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::model {

namespace {

// If the map has a copy of the weight that is quantized once for many products.
void bind_codes(const Memory& memory, const char* slot, int64_t repeat, const std::string& name,
                NarrowProducts& narrow) {
  if (!memory.map().has("narrow") || memory.repeats("narrow", slot) == 0) return;
  narrow.weight = memory.vector("narrow", slot, repeat, name);
  narrow.weight_turned = memory.vector("narrow", slot, repeat, name + ".turned");
}

}  // namespace

NarrowProducts bind_narrow(spec::Precision precision, const Memory& memory) {
  NarrowProducts out;
  if (!spec::is_narrow(precision) || !memory.has("workspace", "step", "narrow.left")) return out;
  out.operand = spec::operand_kind(precision);
  out.gradient = spec::gradient_kind(precision);
  out.left = memory.vector("workspace", "step", 0, "narrow.left");
  out.right = memory.vector("workspace", "step", 0, "narrow.right");
  return out;
}

void set_narrow(const NarrowProducts& narrow, int64_t layer, int64_t slot, uint64_t seed,
                const Memory& memory, BlockLayer& block) {
  const auto set = [&](Linear& linear, const char* name, const char* turned) {
    linear.narrow = narrow;
    linear.narrow.key = stream_key(seed, "rounding", fmt::format("blocks.{}.{}", layer, name));
    if (memory.has("workspace", "step", turned)) {
      linear.narrow.turned = memory.vector("workspace", "step", 0, turned);
    }
    bind_codes(memory, "block", slot, name, linear.narrow);
  };
  set(block.attention.qkv, "attention.qkv", "narrow.turned.qkv");
  set(block.attention.output, "attention.output", "narrow.turned.output");
  set(block.mlp.up, "mlp.up", "narrow.turned.up");
  set(block.mlp.down, "mlp.down", "narrow.turned.down");
}

void set_narrow(const NarrowProducts& narrow, const Memory& memory, LossLayer& loss) {
  loss.head.narrow = narrow;
  bind_codes(memory, "head", 0, "head", loss.head.narrow);
}

}  // namespace tutti::model
