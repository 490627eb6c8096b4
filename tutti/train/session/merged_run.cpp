#include "tutti/train/session/merged_run.h"

#include <utility>
#include <vector>

#include "tutti/checkpoint/huggingface/adapter.h"
#include "tutti/spec/model/params.h"
#include "tutti/train/session/run_state.h"

namespace tutti::train {

spec::Recipe merged_recipe(const LoadedRun& run) {
  spec::Recipe recipe = run.recipe;
  recipe.lora = {};
  recipe.distill = {};
  recipe.checkpoint.initialize_from.clear();
  return recipe;
}

checkpoint::Written write_merged(FileSystem& files, LoadedRun& run,
                                 const std::string& checkpoints) {
  const spec::ModelConfig& model = run.recipe.model;
  const spec::ParamLayout layout = spec::param_layout(spec::param_table(model, run.recipe.lora));
  std::vector<float> with_adapters = std::move(run.master);
  run.master = {};
  checkpoint::merge_adapters(layout, model, with_adapters.data());
  const std::vector<float> plain =
      checkpoint::without_adapters(layout, model, with_adapters.data());
  with_adapters = {};
  std::vector<checkpoint::TensorSource> tensors;
  for (const spec::PlacedParam& placed : spec::param_layout(spec::param_table(model)).params) {
    tensors.push_back({"param." + placed.name,
                       DType::f32,
                       placed.param.shape,
                       plain.data() + placed.element_offset,
                       {},
                       {}});
  }
  RunState state;
  state.step = run.step;
  files.create_directories(checkpoints);
  const spec::Recipe recipe = merged_recipe(run);
  checkpoint::WriteOptions options;
  options.key_file = recipe.checkpoint.key_file;
  return checkpoint::write_checkpoint(files, checkpoints, tensors,
                                      to_checkpoint_state(state, recipe), options);
}

}  // namespace tutti::train
