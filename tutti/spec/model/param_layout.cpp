// Layout of the parameters on a rank (params.h).
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "tutti/base/check.h"
#include "tutti/base/round_up.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {
namespace {

bool is_block(const ParamGroup& group) { return group.prefix == "blocks."; }

// The group of the final norm, where it has no head of its own.
bool is_tied_head(const ParamGroup& group) {
  return group.params.front().name.starts_with("final_norm") && group.prefix != "prediction." &&
         group.params.back().name != "head.weight";
}

// Per layer: whether pipeline rank `stage` holds it.
std::vector<bool> layers_of_rank(const ParamTable& table, const Mesh& mesh, int64_t stage) {
  int64_t layers = 0;
  for (const ParamGroup& group : table.groups) layers += is_block(group) ? group.repeats : 0;
  std::vector<bool> held(static_cast<size_t>(layers));
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    const LayerRange range = stage_layers(mesh, layers, chunk * mesh.pp + stage);
    std::fill_n(held.begin() + range.first, range.count, true);
  }
  return held;
}

}  // namespace

int64_t align_elements(int64_t count) { return round_up(count, kParamAlignment); }

const PlacedParam& ParamLayout::find(const std::string& name) const {
  const auto found = std::find_if(params.begin(), params.end(),
                                  [&](const PlacedParam& placed) { return placed.name == name; });
  TUTTI_CHECK(found != params.end(), "no parameter {}", name);
  return *found;
}

ParamLayout param_layout(const ParamTable& table, const Mesh& mesh, const Coordinates& at) {
  const int64_t ep_rank = (at.dp * mesh.cp + at.cp) % mesh.ep;
  const std::vector<bool> held = layers_of_rank(table, mesh, at.pp);
  const bool layered = mesh.zero >= 2;
  ParamLayout layout;
  layout.lora = table.lora;
  // ZeRO divides every zone of the layout equally, and in stages 2 and 3 every layer of it.
  const auto pad = [&](bool expert, int64_t first) {
    const int64_t unit = kParamAlignment * (mesh.zero >= 1 ? replicas(mesh, expert) : 1);
    layout.elements = first + (layout.elements - first + unit - 1) / unit * unit;
  };
  using Holds = std::function<bool(const Param&)>;
  const auto add = [&](const std::string& prefix, const Param& param, const Holds& holds) {
    if (!holds(param)) return;
    layout.params.push_back(
        {prefix + param.name, param, layout.elements, param_shard(param, mesh, at.tp, ep_rank)});
    layout.elements += align_elements(layout.params.back().shard.count());
  };
  const auto add_all = [&](const Holds& holds, bool expert) {
    for (size_t i = table.groups.size(); i-- > 0;) {
      const ParamGroup& group = table.groups[i];
      const bool last = at.pp == mesh.pp - 1;
      for (int64_t layer = group.first_layer + group.repeats - 1; layer >= group.first_layer;
           --layer) {
        const bool here =
            is_block(group) ? held[static_cast<size_t>(layer)] : (i == 0 ? at.pp == 0 : last);
        if (!here) continue;
        const std::string prefix =
            group.numbered ? fmt::format("{}{}.", group.prefix, layer) : group.prefix;
        int64_t first = layout.elements;
        for (auto param = group.params.rbegin(); param != group.params.rend(); ++param) {
          // First and last stage divide the token table equally (spec/mesh/zero_layers.h).
          if (layered && mesh.pp > 1 && i == 0 && &*param == &group.params.front()) {
            pad(expert, first);
            first = layout.elements;
          }
          add(prefix, *param, holds);
        }
        if (layered) pad(expert, first);
      }
      if (mesh.pp > 1 && last && is_tied_head(group)) {
        const int64_t first = layout.elements;
        add("", table.groups.front().params.front(), holds);
        if (layered) pad(expert, first);
      }
    }
  };
  const bool apart = mesh.ep > 1;
  add_all([&](const Param& param) { return param.trainable && !(apart && param.expert); }, false);
  pad(false, 0);
  layout.expert_offset = layout.elements;
  if (apart) {
    add_all([](const Param& param) { return param.trainable && param.expert; }, true);
    pad(true, layout.expert_offset);
  }
  layout.trainable_elements = layout.elements;
  add_all([](const Param& param) { return !param.trainable; }, false);
  return layout;
}

ParamLayout param_layout(const ParamTable& table) {
  return param_layout(table, Mesh{}, Coordinates{});
}

std::string tied_copy(const Recipe& recipe, const Coordinates& at) {
  const Mesh& mesh = recipe.parallel;
  const bool here = recipe.model.tied_embeddings && mesh.pp > 1 && at.pp == mesh.pp - 1;
  return here && !recipe.lora.enabled() ? "embedding.token.weight" : "";
}

}  // namespace tutti::spec
