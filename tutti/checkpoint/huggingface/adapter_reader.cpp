#include "tutti/checkpoint/huggingface/adapter_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/repeated_key.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/families.h"
#include "tutti/checkpoint/huggingface/keys.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/store/elements.h"
#include "tutti/checkpoint/store/safetensors.h"
#include "tutti/spec/recipe/lora.h"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.";
constexpr std::string_view kWeightEnd = ".weight";

// Where a module of transformers is in our projections.
struct ModuleRows {
  int64_t layer = 0;
  spec::Projection projection = spec::Projection::qkv;
  int64_t first_row = 0;
  int64_t rows = 0;
};

std::map<std::string, ModuleRows> module_rows_of(const spec::ModelConfig& model, HfFamily family) {
  std::map<std::string, std::pair<int64_t, spec::Projection>> ours;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    for (const spec::Projection projection : {spec::Projection::qkv, spec::Projection::output,
                                              spec::Projection::up, spec::Projection::down}) {
      ours[fmt::format("blocks.{}.{}.weight", layer, spec::projection_name(model, projection))] = {
          layer, projection};
    }
  }
  std::map<std::string, ModuleRows> out;
  for (const HfParameter& parameter : hf_parameters(model, family, hf_prefix(family))) {
    const auto found = ours.find(parameter.name);
    if (found == ours.end()) continue;
    int64_t first = 0;
    for (const HfPart& part : parameter.parts) {
      const int64_t rows = part.transposed ? part.shape[1] : part.shape[0];
      out[part.name.substr(0, part.name.size() - kWeightEnd.size())] = {
          found->second.first, found->second.second, first, rows};
      first += rows;
    }
  }
  return out;
}

// lora_alpha, and those of modules that have their own: PEFT matches whole names, or their ends
// behind a dot.
struct Scales {
  double alpha = 0;
  std::map<std::string, double> patterns;
  bool by_root = false;  // rslora: alpha / sqrt(rank)

  double of(const std::string& module, int64_t rank) const {
    double own = alpha;
    for (const auto& [pattern, value] : patterns) {
      if (module == pattern || ends_with(module, "." + pattern)) own = value;
    }
    const auto size = static_cast<double>(rank);
    return own / (by_root ? std::sqrt(size) : size);
  }
};

Scales read_peft_config(FileSystem& files, const std::string& path) {
  const Json config = parse_unique_json(read_file(files, path), path);
  if (!config.is_object()) fail(ErrorKind::usage, "{}: no JSON object", path);
  HfKeys keys(config, path);
  keys.only("peft_type", {"LORA"});
  keys.only("task_type", {"CAUSAL_LM"});
  keys.only("bias", {"none"});
  for (const char* key : {"use_dora", "lora_bias", "use_qalora"}) keys.only(key, {false});
  for (const char* key : {"modules_to_save", "layer_replication", "trainable_token_indices",
                          "target_parameters", "exclude_modules"}) {
    keys.only(key, {Json::array()});
  }
  Scales out;
  out.alpha = keys.real("lora_alpha");
  out.by_root = keys.flag("use_rslora", false);
  if (!keys.has("alpha_pattern")) return out;
  for (const auto& [module, value] : keys.object("alpha_pattern").items()) {
    if (!value.is_number() || module.find_first_of("*+?[](){}|^$\\") != std::string::npos) {
      keys.refuse("alpha_pattern", "numbers of modules by their names or the ends of these");
    }
    out.patterns[module] = value.get<double>();
  }
  return out;
}

struct Half {
  std::vector<float> values;
  std::vector<int64_t> shape;
};
struct Pair {
  std::optional<Half> a, b;
};

}  // namespace

std::vector<spec::LowRankTerm> read_peft(FileSystem& files, const std::string& folder,
                                         const spec::ModelConfig& model, HfFamily family) {
  if (hf_family_names(family).interleaved || model.attention == spec::Attention::latent) {
    fail(ErrorKind::unsupported,
         "'{}': adapters of a model of type {}, whose projections lie otherwise in transformers",
         folder, hf_family_name(family));
  }
  const Scales scales = read_peft_config(files, join_path(folder, kPeftConfig));
  const std::string path = join_path(folder, kPeftWeights);
  if (!files.exists(path)) {
    fail(ErrorKind::not_found, "'{}' has no {}: PEFT's safetensors are read, no pickles", folder,
         kPeftWeights);
  }
  const auto map = files.map(path);
  const std::map<std::string, ModuleRows> modules = module_rows_of(model, family);
  std::map<std::string, Pair> pairs;
  for (const SafetensorsTensor& tensor : parse_safetensors(map->bytes(), path).tensors) {
    const bool is_a = ends_with(tensor.name, ".lora_A.weight");
    const bool is_b = ends_with(tensor.name, ".lora_B.weight");
    const size_t end = std::string_view(".lora_A.weight").size();
    std::string module;
    if ((is_a || is_b) && starts_with(tensor.name, kPeftPrefix)) {
      module =
          tensor.name.substr(kPeftPrefix.size(), tensor.name.size() - kPeftPrefix.size() - end);
    }
    if (modules.count(module) == 0) {
      fail(ErrorKind::unsupported,
           "{}: tensor '{}' is no adapter of a projection that this model has in attention or MLP",
           path, printable(tensor.name));
    }
    if (!is_parameter_type(tensor.dtype) || tensor.shape.size() != 2) {
      fail(ErrorKind::unsupported,
           "{}: tensor '{}' is {} {}; adapters are matrices of F32, BF16 or "
           "F16",
           path, tensor.name, dtype_name(tensor.dtype), format_shape(tensor.shape));
    }
    Half half;
    half.shape = tensor.shape;
    half.values.resize(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]));
    convert_elements(tensor.dtype, map->bytes().data() + tensor.begin, DType::f32,
                     half.values.data(), static_cast<int64_t>(half.values.size()),
                     fmt::format("{}: tensor '{}'", path, tensor.name));
    (is_a ? pairs[module].a : pairs[module].b) = std::move(half);
  }
  if (pairs.empty()) fail(ErrorKind::usage, "{}: no adapters in it", path);
  std::vector<spec::LowRankTerm> out;
  out.reserve(pairs.size());
  for (auto& [module, pair] : pairs) {
    if (!pair.a || !pair.b) {
      fail(ErrorKind::usage, "{}: module '{}' has only one of lora_A and lora_B", path, module);
    }
    const ModuleRows& rows = modules.at(module);
    spec::LowRankTerm term;
    term.layer = rows.layer;
    term.projection = rows.projection;
    term.first_row = rows.first_row;
    term.rows = rows.rows;
    term.inputs = spec::projection_inputs(model, rows.projection);
    term.rank = pair.a->shape[0];
    if (term.rank < 1 || pair.a->shape[1] != term.inputs ||
        pair.b->shape != std::vector<int64_t>{term.rows, term.rank}) {
      fail(ErrorKind::usage,
           "{}: module '{}' has lora_A {} and lora_B {}; this model needs [r, {}] and [{}, r]: are "
           "they adapters of another one?",
           path, module, format_shape(pair.a->shape), format_shape(pair.b->shape), term.inputs,
           term.rows);
    }
    term.scale = scales.of(module, term.rank);
    term.a = std::move(pair.a->values);
    term.b = std::move(pair.b->values);
    out.push_back(std::move(term));
  }
  return out;
}

}  // namespace tutti::checkpoint
