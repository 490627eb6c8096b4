#include "tutti/endpoint/adapters.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/adapter_reader.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/spec/model/low_rank.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/step/initial_weights.h"

namespace tutti::endpoint {
namespace {

// A longer context is not another model.
void check_model(const std::string& path, const spec::ModelConfig& theirs,
                 const LoadedModel& model) {
  const Json served = train::describe_model(model.config);
  const Json wanted = train::describe_model(theirs);
  for (const auto& [key, value] : wanted.items()) {
    if (key == "context" || (served.contains(key) && served.at(key) == value)) continue;
    fail(ErrorKind::usage,
         "'{}': its adapters are of a model with {} {}, and '{}' has {}; serve the model that they "
         "were trained on",
         path, key, value.dump(), model.path,
         served.contains(key) ? served.at(key).dump() : "none");
  }
}

std::vector<spec::LowRankTerm> read_run(FileSystem& files, const std::string& path,
                                        const LoadedModel& model) {
  const train::LoadedRun run = train::find_run(files, path, false);
  const spec::Recipe& recipe = run.recipe;
  if (!recipe.lora.enabled()) {
    fail(ErrorKind::usage,
         "'{}' has no adapters: its recipe has lora.rank 0; serve it as a model of its own", path);
  }
  check_model(path, recipe.model, model);
  checkpoint::Reader reader(files, run.checkpoint);
  const std::optional<checkpoint::Base>& base = reader.manifest().state.base;
  if (base && !model.checkpoint.empty() &&
      train::base_of(files, model.checkpoint).manifest_xxh3 != base->manifest_xxh3) {
    fail(ErrorKind::usage,
         "'{}': its adapters were trained on '{}', and '{}' is another checkpoint; serve that one",
         path, base->path, model.checkpoint);
  }
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(recipe.model, recipe.lora));
  const auto load = [&](const std::string& name) {
    const spec::Param& param = layout.find(name).param;
    std::vector<float> values(static_cast<size_t>(param.count()));
    reader.load("param." + name, DType::f32, param.shape, values.data());
    return values;
  };
  std::vector<spec::LowRankTerm> out;
  for (int64_t layer = 0; layer < recipe.model.layers; ++layer) {
    for (const spec::Adapter& adapter : spec::adapters(recipe.model, recipe.lora)) {
      spec::LowRankTerm& term = out.emplace_back();
      term.layer = layer;
      term.projection = adapter.projection;
      term.first_row = adapter.first_row;
      term.rows = adapter.rows;
      term.inputs = spec::projection_inputs(recipe.model, adapter.projection);
      term.rank = recipe.lora.rank;
      term.scale = recipe.lora.scale();
      const std::string name = fmt::format("blocks.{}.{}", layer, adapter.name);
      term.a = load(name + ".lora_a.weight");
      term.b = load(name + ".lora_b.weight");
    }
  }
  return out;
}

// In whose names a folder of PEFT speaks; of a run those of its export.
checkpoint::HfFamily family_of(const LoadedModel& model) {
  return model.family ? *model.family : checkpoint::hf_family_of(model.config);
}

}  // namespace

void add_adapter(FileSystem& files, LoadedModel& model, const std::string& name,
                 const std::string& path) {
  if (model.weights->layout().lora.enabled()) {
    fail(ErrorKind::usage,
         "'{}' has adapters of its own, and takes no others; serve the model below them, or merge "
         "them: 'tutti checkpoint merge {} --out FOLDER'",
         model.path, model.path);
  }
  if (!files.exists(path)) {
    fail(ErrorKind::not_found,
         "'{}' does not exist; give a run that trained adapters, or a folder of PEFT", path);
  }
  const bool is_peft = files.exists(join_path(path, checkpoint::kPeftConfig));
  const std::vector<spec::LowRankTerm> terms =
      is_peft ? checkpoint::read_peft(files, path, model.config, family_of(model))
              : read_run(files, path, model);
  LoadedAdapter adapter;
  adapter.name = name;
  adapter.path = path;
  adapter.weights =
      std::make_unique<model::ServedAdapter>(model.config, model.weights->compute(), terms);
  model.adapters.push_back(std::move(adapter));
}

}  // namespace tutti::endpoint
