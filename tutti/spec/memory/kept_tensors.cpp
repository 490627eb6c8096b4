#include "tutti/spec/memory/kept_tensors.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/narrow.h"

namespace tutti::spec {
namespace {

bool is_named(const SavedTensor& tensor, const char* name) {
  return std::string_view(tensor.name) == name;
}

// The projection of a dense layer that is the only reader of a kept tensor.
bool reads_alone(const SavedTensor& tensor, Projection& projection) {
  static constexpr std::pair<const char*, Projection> kInputs[] = {
      {"norm1.y", Projection::qkv},
      {"norm2.y", Projection::up},
      {"mlp.act", Projection::down},
  };
  for (const auto& [name, reader] : kInputs) {
    if (!is_named(tensor, name)) continue;
    projection = reader;
    return true;
  }
  return false;
}

void leave_out_frozen_inputs(const Recipe& recipe, std::vector<SavedTensor>& list) {
  const ModelConfig& model = recipe.model;
  const auto adapted = [&](Projection projection) {
    return adapter_columns(model, recipe.lora, projection) > 0;
  };
  const bool routed = model.moe.experts > 0;
  std::erase_if(list, [&](const SavedTensor& tensor) {
    Projection projection{};
    // Routers and experts read the second norm too; their kept tensors are described as if trained.
    if (!reads_alone(tensor, projection) || (routed && projection != Projection::qkv)) return false;
    return !adapted(projection);
  });
  if (adapted(Projection::output) && recipe.lora.dropout > 0) {
    list.push_back({"attention.output.dropped", Rows::tokens, Width::attention_out,
                    Element::compute, Split::columns, kGrouped});
  }
  static constexpr std::pair<const char*, Width> kInner[] = {
      {"attention.qkv.lora", Width::lora_qkv},
      {"attention.output.lora", Width::lora_output},
      {"mlp.up.lora", Width::lora_up},
      {"mlp.down.lora", Width::lora_down},
  };
  for (const auto& [name, width] : kInner) {
    list.push_back({name, Rows::tokens, width, Element::compute, Split::none, kGrouped | kDense});
  }
}

// Only products read these; in a model with experts the router also reads the second norm.
bool only_products_read(const SavedTensor& tensor, const ModelConfig& model) {
  static constexpr const char* kInputs[] = {
      "norm1.y",   "mlp.act", "attention.query_norm.y", "attention.kv_norm.y",
      "moe.input", "moe.act", "moe.shared.act"};
  if (is_named(tensor, "norm2.y")) return model.moe.experts == 0;
  return std::any_of(std::begin(kInputs), std::end(kInputs),
                     [&](const char* name) { return is_named(tensor, name); });
}

// Inputs of products, all of them trained, in the format that the products read.
void keep_inputs_narrow(const ModelConfig& model, std::vector<SavedTensor>& list) {
  for (SavedTensor& tensor : list) {
    if (only_products_read(tensor, model)) tensor.element = Element::product;
  }
  // Attention keeps its output in the compute type, and the projection after it keeps its own
  // input.
  list.push_back({"attention.output.input", Rows::tokens, Width::attention_out, Element::product,
                  Split::columns, kAlways});
}

}  // namespace

std::vector<SavedTensor> kept_tensors(const Recipe& recipe, const Profile& profile) {
  std::vector<SavedTensor> list = profile.block;
  if (profile.executable) return list;
  if (recipe.lora.enabled()) leave_out_frozen_inputs(recipe, list);
  if (!is_narrow(recipe.precision)) return list;
  if (profile.narrow_kept_inputs && !recipe.lora.enabled()) {
    keep_inputs_narrow(recipe.model, list);
  }
  if (profile.narrow_activation_input) {
    for (SavedTensor& tensor : list) {
      if (is_named(tensor, "mlp.up")) tensor.element = Element::mask;
    }
  }
  return list;
}

int64_t narrow_frozen_elements(const ParamTable& table, const Recipe& recipe,
                               const Profile& profile, int64_t stage) {
  if (!profile.narrow_frozen_weights || !recipe.lora.enabled() || !is_narrow(recipe.precision) ||
      held_zero(recipe.parallel, profile) >= 3) {
    return 0;
  }
  return local_elements(narrow_parameters(table), recipe, stage).total();
}

double narrow_frozen_bytes(Precision precision) {
  return operand_bytes(precision) * (block_scaled_format(precision) != nullptr ? 2 : 1);
}

}  // namespace tutti::spec
