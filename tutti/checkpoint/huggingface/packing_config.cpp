#include "tutti/checkpoint/huggingface/packing_config.h"

#include <fmt/format.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/keys.h"
#include "tutti/spec/model/packed_params.h"

namespace tutti::checkpoint {
namespace {

constexpr const char* kFormat = "pack-quantized";
constexpr const char* kOwnMethod = "tutti";
constexpr const char* kLibraryMethod = "compressed-tensors";
constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kTable = "embedding.token.weight";
constexpr std::string_view kPositions = "embedding.position.weight";

int bits_of(PackKind kind) { return kind == PackKind::int8 ? 8 : 4; }

Json group_json(std::vector<std::string> targets, PackKind kind) {
  return {{"targets", std::move(targets)},
          {"weights",
           {{"num_bits", bits_of(kind)},
            {"type", "int"},
            {"symmetric", true},
            {"strategy", "group"},
            {"group_size", kPackGroup},
            {"dynamic", false}}},
          {"input_activations", nullptr},
          {"output_activations", nullptr}};
}

PackKind read_group(const Json& group, std::string_view path, const std::string& prefix) {
  HfKeys keys(group, path, prefix);
  keys.only("format", {kFormat});
  keys.only("input_activations", {}, "null: activations are not quantized");
  keys.only("output_activations", {}, "null: activations are not quantized");
  HfKeys weights(keys.object("weights"), path, prefix + "weights.");
  weights.count("num_bits");
  weights.only("num_bits", {4, 8});
  weights.only("type", {"int"});
  weights.only("symmetric", {true});
  weights.text("strategy", "group");
  weights.only("strategy", {"group"});
  weights.count("group_size");
  weights.only("group_size", {kPackGroup});
  weights.only("dynamic", {false});
  weights.only("actorder", {});
  return weights.count("num_bits") == 8 ? PackKind::int8 : PackKind::int4;
}

}  // namespace

std::optional<PackKind> file_pack_kind(const spec::ModelConfig& model, const HfParameter& parameter,
                                       PackKind wanted) {
  if (parameter.name == kTable) return {};
  return spec::pack_kind_of(model, parameter.name, parameter.shape, wanted);
}

const char* packing_method(HfFamily family) {
  return family == HfFamily::gpt2 ? kOwnMethod : kLibraryMethod;
}

bool has_packing(const Json& config) {
  if (!config.is_object()) return false;
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return false;
  const Json method = found->value("quant_method", Json());
  return method == kOwnMethod || method == kLibraryMethod;
}

PackKind read_packing(const Json& quantization, HfFamily family, std::string_view path) {
  const std::string prefix = "quantization_config.";
  HfKeys keys(quantization, path, prefix);
  keys.only("quant_method", {packing_method(family)});
  keys.text("format", "");
  keys.only("format", {kFormat});
  keys.only("quantization_status", {"compressed"});
  keys.only("kv_cache_scheme", {}, "null: keys and values are not quantized");
  keys.only("sparsity_config", {Json::object()});
  const Json& groups = keys.object("config_groups");
  if (groups.empty()) keys.refuse("config_groups", "at least one group");
  PackKind out = PackKind::int8;
  for (const auto& [name, group] : groups.items()) {
    if (!group.is_object()) keys.refuse("config_groups", "groups with targets and weights");
    const std::string within = fmt::format("{}config_groups.{}.", prefix, printable(name));
    if (read_group(group, path, within) == PackKind::int4) out = PackKind::int4;
  }
  return out;
}

Json packing_config(const spec::ModelConfig& model, HfFamily family,
                    const std::vector<HfParameter>& parameters, PackKind kind) {
  // Modules are named where their kind is another, or none at all.
  std::vector<std::string> others;
  std::vector<std::string> ignored;
  for (const HfParameter& parameter : parameters) {
    const std::optional<PackKind> packed = file_pack_kind(model, parameter, kind);
    const bool is_table = parameter.name == kTable || parameter.name == kPositions;
    for (const HfPart& part : parameter.parts) {
      if (!ends_with(part.name, kWeight) || part.shape.size() != 2) continue;
      const std::string module = part.name.substr(0, part.name.size() - kWeight.size());
      if (packed && packed != kind) others.push_back(module);
      if (!packed && !is_table) ignored.push_back(module);
    }
  }
  if (model.tied_embeddings) ignored.emplace_back("lm_head");  // is the table of embeddings
  Json groups = {{"group_0", group_json({"Linear"}, kind)}};
  if (!others.empty()) groups["group_1"] = group_json(std::move(others), PackKind::int8);
  return {{"quant_method", packing_method(family)},
          {"format", kFormat},
          {"quantization_status", "compressed"},
          {"config_groups", std::move(groups)},
          {"ignore", std::move(ignored)}};
}

}  // namespace tutti::checkpoint
