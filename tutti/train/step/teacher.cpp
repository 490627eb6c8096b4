#include "tutti/train/step/teacher.h"

#include <string>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/checkpoint/huggingface/adapter.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/spec/model/params.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/step/initial_weights.h"

namespace tutti::train {
namespace {

// action(), whose errors then name the key.
template <typename Action>
auto of_teacher(const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    fail(error.kind(), "distill.teacher: {}", error.what());
  }
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// The run that a run folder or one of its checkpoint folders belongs to.
std::string run_of(const std::string& given) {
  const std::string path = without_slash(given);
  return checkpoint::parse_step_folder_name(base_name(path)) ? parent_path(parent_path(path))
                                                             : path;
}

void check_model(const spec::Recipe& recipe, spec::ModelConfig found) {
  const spec::ModelConfig& said = *recipe.distill.model;
  found.name = said.name;
  if (found == said) return;
  const auto before = flatten_yaml(spec::to_yaml(said));
  const auto after = flatten_yaml(spec::to_yaml(found));
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    fail(ErrorKind::usage,
         "distill.model: {} is {} in the recipe and {} in the teacher '{}'; leave distill.model "
         "out, it is taken from there",
         before[i].first, before[i].second, after[i].second, recipe.distill.teacher);
  }
}

// Where the tokenizer of the teacher is kept; empty: nowhere.
std::string tokenizer_of(FileSystem& files, const LoadedRun& teacher) {
  const std::string own = tokenizer_path(run_of(teacher.checkpoint));
  if (files.exists(own)) return own;
  for (const spec::CorpusShare& share : teacher.recipe.data.train.corpora) {
    const std::string path = data::corpus_paths(share.prefix).tokenizer;
    if (files.exists(path)) return path;
  }
  return "";
}

void check_tokenizer(FileSystem& files, const spec::Recipe& recipe, const LoadedRun& teacher) {
  const std::string theirs = tokenizer_of(files, teacher);
  if (theirs.empty()) return;
  for (const spec::CorpusShare& share : recipe.data.train.corpora) {
    const std::string ours = data::corpus_paths(share.prefix).tokenizer;
    if (!files.exists(ours)) continue;
    if (data::tokenizer_hash(*data::load_tokenizer_file(files, ours)) ==
        data::tokenizer_hash(*data::load_tokenizer_file(files, theirs))) {
      continue;
    }
    fail(ErrorKind::usage,
         "distill.teacher: '{}' has another tokenizer ({}) than the corpus of data.train ({}), so "
         "that its predictions are of other tokens; prepare the corpus with --tokenizer {}, or "
         "take a teacher of this one",
         recipe.distill.teacher, theirs, ours, theirs);
  }
}

}  // namespace

void resolve_teacher(FileSystem& files, spec::Recipe& recipe) {
  spec::DistillConfig& distill = recipe.distill;
  if (!distill.enabled() || distill.model) return;
  distill.model = of_teacher([&] { return load_recipe(files, run_of(distill.teacher)); }).model;
  spec::validate(recipe);
}

LoadedTeacher load_teacher(FileSystem& files, const spec::Recipe& recipe,
                           const std::optional<checkpoint::Teacher>& recorded) {
  const std::string given = without_slash(recipe.distill.teacher);
  LoadedRun run = of_teacher([&] {
    return load_run(files,
                    recorded ? find_recorded(files, recorded->checkpoint, given, "teacher",
                                             "the run continues only with the checkpoint that it "
                                             "began to learn from: put it back, or say where it is "
                                             "with distill.teacher")
                             : given,
                    false);
  });
  check_model(recipe, run.recipe.model);
  check_tokenizer(files, recipe, run);
  LoadedTeacher teacher;
  teacher.record = {base_of(files, run.checkpoint), run.step};
  if (run.recipe.lora.enabled()) {
    const spec::ModelConfig& model = run.recipe.model;
    const spec::ParamLayout layout = spec::param_layout(spec::param_table(model, run.recipe.lora));
    checkpoint::merge_adapters(layout, model, run.master.data());
    teacher.master = checkpoint::without_adapters(layout, model, run.master.data());
  } else {
    teacher.master = std::move(run.master);
  }
  return teacher;
}

void check_teacher(FileSystem& files, const spec::Recipe& recipe) {
  const LoadedRun run =
      of_teacher([&] { return find_run(files, without_slash(recipe.distill.teacher), false); });
  check_model(recipe, run.recipe.model);
  check_tokenizer(files, recipe, run);
}

}  // namespace tutti::train
