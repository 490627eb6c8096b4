#include "tutti/checkpoint/huggingface/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/families.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/store/parallel.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::checkpoint {
namespace {

// One adapter of one block: its tensors in the flat parameters, and the projection that it adapts.
struct Placed {
  spec::Adapter adapter;
  std::string block;  // "blocks.3."
  const float* a;     // [rank, in]
  const float* b;     // [rows, rank]
};

std::vector<Placed> placed_adapters(const spec::ParamLayout& layout, const spec::ModelConfig& model,
                                    const float* flat) {
  std::vector<Placed> list;
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string block = fmt::format("blocks.{}.", layer);
    for (const spec::Adapter& adapter : spec::adapters(model, layout.lora)) {
      const auto at = [&](const char* half) {
        const std::string name = block + adapter.name + half;
        return flat + layout.find(name).element_offset;
      };
      list.push_back({adapter, block, at(".lora_a.weight"), at(".lora_b.weight")});
    }
  }
  return list;
}

// A module of transformers with its adapters.
struct Module {
  std::string name;       // "transformer.h.0.attn.c_attn"
  int64_t first_row = 0;  // of the projection's outputs
  int64_t rows = 0;
  std::vector<Placed> adapters;
};

std::vector<Module> modules_of(const std::vector<Placed>& placed, const spec::ModelConfig& model,
                               HfFamily family) {
  std::map<std::string, std::vector<HfPart>> parts;
  for (HfParameter& parameter : hf_parameters(model, family, hf_prefix(family))) {
    parts[parameter.name] = std::move(parameter.parts);
  }
  std::vector<Module> modules;
  std::map<std::string, size_t> index;
  for (const Placed& one : placed) {
    const std::string weight =
        one.block + spec::projection_name(model, one.adapter.projection) + ".weight";
    int64_t first = 0;
    for (const HfPart& part : parts.at(weight)) {
      const int64_t rows = part.transposed ? part.shape[1] : part.shape[0];
      const bool reached =
          one.adapter.first_row < first + rows && first < one.adapter.first_row + one.adapter.rows;
      if (reached) {
        const std::string name = part.name.substr(0, part.name.find_last_of('.'));
        const auto [found, added] = index.try_emplace(name, modules.size());
        if (added) modules.push_back({name, first, rows, {}});
        modules[found->second].adapters.push_back(one);
      }
      first += rows;
    }
  }
  return modules;
}

// "attn.c_attn": the suffix of module names that PEFT matches, the same in every layer.
std::string target_of(const std::string& module) {
  const size_t last = module.find_last_of('.');
  return module.substr(module.find_last_of('.', last - 1) + 1);
}

Json number(double value) {
  return value == std::floor(value) ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json config_of(const std::vector<Module>& modules, const spec::LoraConfig& lora,
               const std::string& base, bool transposed) {
  std::set<std::string> targets;
  Json ranks = Json::object();
  Json alphas = Json::object();
  for (const Module& module : modules) {
    const std::string target = target_of(module.name);
    targets.insert(target);
    const auto times = static_cast<int64_t>(module.adapters.size());
    if (times == 1) continue;
    ranks[target] = times * lora.rank;
    alphas[target] = number(static_cast<double>(times) * lora.alpha);
  }
  return Json{{"alpha_pattern", alphas},
              {"auto_mapping", nullptr},
              {"base_model_name_or_path", base},
              {"bias", "none"},
              {"fan_in_fan_out", transposed},
              {"inference_mode", true},
              {"init_lora_weights", true},
              {"layers_pattern", nullptr},
              {"layers_to_transform", nullptr},
              {"lora_alpha", number(lora.alpha)},
              {"lora_dropout", lora.dropout},
              {"modules_to_save", nullptr},
              {"peft_type", "LORA"},
              {"r", lora.rank},
              {"rank_pattern", ranks},
              {"revision", nullptr},
              {"target_modules", targets},
              {"task_type", "CAUSAL_LM"},
              {"use_dora", false},
              {"use_rslora", false}};
}

// The two matrices of a module: A [n r, in] of its n adapters, B [rows, n r] with their rows.
struct Matrices {
  std::vector<float> a, b;
  int64_t rank = 0;
  int64_t in = 0;
};

Matrices matrices_of(const Module& module, const spec::ModelConfig& model,
                     const spec::LoraConfig& lora) {
  const int64_t r = lora.rank;
  Matrices out;
  out.in = spec::projection_inputs(model, module.adapters.front().adapter.projection);
  out.rank = r * static_cast<int64_t>(module.adapters.size());
  out.b.assign(static_cast<size_t>(module.rows * out.rank), 0.0F);
  int64_t column = 0;
  for (const Placed& one : module.adapters) {
    out.a.insert(out.a.end(), one.a, one.a + r * out.in);
    const int64_t begin = std::max(module.first_row, one.adapter.first_row);
    const int64_t end =
        std::min(module.first_row + module.rows, one.adapter.first_row + one.adapter.rows);
    for (int64_t row = begin; row < end; ++row) {
      std::copy_n(one.b + (row - one.adapter.first_row) * r, r,
                  out.b.begin() + (row - module.first_row) * out.rank + column);
    }
    column += r;
  }
  return out;
}

}  // namespace

void merge_adapters(const spec::ParamLayout& layout, const spec::ModelConfig& model, float* flat) {
  const auto scale = static_cast<float>(layout.lora.scale());
  const int64_t rank = layout.lora.rank;
  for (const Placed& one : placed_adapters(layout, model, flat)) {
    const int64_t in = spec::projection_inputs(model, one.adapter.projection);
    const std::string weight =
        one.block + spec::projection_name(model, one.adapter.projection) + ".weight";
    float* w = flat + layout.find(weight).element_offset + one.adapter.first_row * in;
    constexpr int64_t kRowsPerTask = 64;
    parallel_threads((one.adapter.rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task) {
      std::vector<float> sum(static_cast<size_t>(in));
      const int64_t end = std::min((task + 1) * kRowsPerTask, one.adapter.rows);
      for (int64_t row = task * kRowsPerTask; row < end; ++row) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (int64_t k = 0; k < rank; ++k) {
          const float b = one.b[row * rank + k];
          const float* a = one.a + k * in;
          for (int64_t j = 0; j < in; ++j) sum[static_cast<size_t>(j)] += b * a[j];
        }
        for (int64_t j = 0; j < in; ++j) w[row * in + j] += scale * sum[static_cast<size_t>(j)];
      }
    });
  }
}

std::vector<float> without_adapters(const spec::ParamLayout& layout, const spec::ModelConfig& model,
                                    const float* flat) {
  const spec::ParamLayout plain = spec::param_layout(spec::param_table(model));
  std::vector<float> out(static_cast<size_t>(plain.elements), 0.0F);
  for (const spec::PlacedParam& placed : plain.params) {
    std::copy_n(flat + layout.find(placed.name).element_offset, placed.param.count(),
                out.begin() + placed.element_offset);
  }
  return out;
}

ExportedAdapter export_adapter(FileSystem& files, const spec::ParamLayout& layout,
                               const spec::ModelConfig& model, const float* flat,
                               const std::string& base, const std::string& folder) {
  const HfFamily family = hf_family_of(model);
  if (hf_family_names(family).interleaved) {
    fail(ErrorKind::unsupported,
         "adapters of a model of type {}: rows of its queries and keys lie in another order in "
         "transformers; export the merged model instead",
         hf_family_name(family));
  }
  const std::vector<Module> modules =
      modules_of(placed_adapters(layout, model, flat), model, family);
  TUTTI_CHECK(!modules.empty(), "no adapters");
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::vector<float>> data;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape,
                       std::vector<float> values) {
    SafetensorsTensor tensor;
    tensor.name = name;
    tensor.dtype = DType::f32;
    tensor.shape = std::move(shape);
    tensors.push_back(std::move(tensor));
    data[name] = std::move(values);
  };
  for (const Module& module : modules) {
    Matrices matrices = matrices_of(module, model, layout.lora);
    const std::string prefix = "base_model.model." + module.name;
    add(prefix + ".lora_A.weight", {matrices.rank, matrices.in}, std::move(matrices.a));
    add(prefix + ".lora_B.weight", {module.rows, matrices.rank}, std::move(matrices.b));
  }

  ExportedAdapter out;
  out.config = config_of(modules, layout.lora, base, family == HfFamily::gpt2);
  files.create_directories(folder);
  const SafetensorsLayout file_layout = layout_safetensors(tensors, {{"format", "pt"}});
  const auto file = files.create(join_path(folder, "adapter_model.safetensors"));
  file->append(file_layout.header.data(), file_layout.header.size());
  for (const SafetensorsTensor& tensor : file_layout.tensors) {
    const std::vector<float>& values = data.at(tensor.name);
    file->append(values.data(), values.size() * sizeof(float));
    out.bytes += static_cast<int64_t>(values.size() * sizeof(float));
    ++out.tensors;
  }
  file->sync();
  file->close();
  write_file_atomic(files, join_path(folder, "adapter_config.json"), pretty_json(out.config));
  return out;
}

}  // namespace tutti::checkpoint
