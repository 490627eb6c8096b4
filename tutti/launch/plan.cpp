#include "tutti/launch/plan.h"

#include <functional>
#include <optional>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/message.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/launch/home.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/mesh/fit_mesh.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/train/session/home_owner.h"
#include "tutti/train/session/peer_copies.h"
#include "tutti/train/session/resume.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/step/teacher.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::launch {
namespace {

spec::Recipe read_recipe(FileSystem& files, const std::string& path,
                         const std::vector<std::string>& overrides, bool dp_is_open = false) {
  return spec::parse_recipe(read_file(files, path), path, overrides, models_folder(files),
                            dp_is_open);
}

// "runs/NAME" for a named run, else "runs/RECIPE-TIME".
std::string default_run_folder(const spec::Recipe& recipe, const std::string& path) {
  if (!recipe.run.name.empty()) return join_path("runs", recipe.run.name);
  std::string stem(base_name(path));
  if (const size_t dot = stem.find_last_of('.'); dot != std::string::npos) stem.resize(dot);
  return join_path("runs", stem + "-" + format_utc_compact(wall_seconds()));
}

// An import has no optimizer state to resume from.
void check_not_import(FileSystem& files, const std::string& run_folder) {
  const std::string model = train::model_path(run_folder);
  if (!files.exists(model)) return;
  fail(ErrorKind::usage,
       "'{}' is an imported model, which cannot be resumed; start a new run from it: tutti train "
       "RECIPE model={} checkpoint.initialize_from={}",
       run_folder, model, run_folder);
}

// The time of an MLPerf run is one stretch, from a fresh folder.
void check_not_started(FileSystem& files, const TrainPlan& plan) {
  const std::string log = train::mlperf_log_path(plan.run_folder);
  if (!plan.recipe.mlperf.enabled() || !files.exists(log)) return;
  fail(ErrorKind::usage,
       "'{}' exists: an MLPerf run (mlperf.benchmark: {}) cannot be resumed; choose "
       "another folder (--run or run.name)",
       log, plan.recipe.mlperf.benchmark);
}

// With --force-resume what `check` finds is a warning.
void insist(const TrainArguments& arguments, const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    if (!arguments.force_resume || error.kind() != ErrorKind::usage) throw;
    print_message(
        fmt::format("tutti: warning: {}; continuing because of --force-resume\n", error.what()));
  }
}

// The recipe file of the run folder to resume is as the run wrote it: it can be read, and no key of
// it is gone.
void check_recipe_file(FileSystem& files, const TrainArguments& arguments) {
  const std::string path = train::recipe_path(arguments.target);
  auto saved = train::saved_recipe(files, arguments.target);
  if (!saved) saved = train::started_recipe(files, arguments.target);
  if (!saved) return;
  if (!arguments.force_resume) train::check_own(files, *saved, arguments.target);
  try {
    read_recipe(files, path, {});
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::permission || error.kind() == ErrorKind::io) throw;
    fail(ErrorKind::usage,
         "{}; the file was edited or damaged: give the recipe that the run was started with (tutti "
         "train RECIPE --run {}); '{}' has it under {}",
         error.what(), arguments.target, saved->path, saved->member);
  }
  insist(arguments, [&] { train::check_whole(read_file(files, path), *saved, arguments.target); });
}

// The recipe is that of the run's checkpoints, wherever it comes from.
void check_same_run(FileSystem& files, const TrainPlan& plan, bool is_run, bool force) {
  const std::string stored = train::recipe_path(plan.run_folder);
  const auto saved = train::saved_recipe(files, train::home_of(plan.recipe, plan.run_folder));
  if (!saved) {
    if (!files.exists(stored)) return;
    train::check_resumable(read_recipe(files, stored, {}), plan.recipe, plan.run_folder);
    return;
  }
  if (!force) train::check_own(files, *saved, plan.run_folder);  // else the session warns
  std::optional<spec::Recipe> file;
  if (is_run) file = read_recipe(files, stored, {});
  train::check_resumable(spec::parse_recipe(saved->yaml, saved->path, {}, models_folder(files)),
                         plan.recipe, plan.run_folder, file ? &*file : nullptr);
}

// The recipe file of a run that has saved nothing yet is as the run wrote it.
void check_unedited_file(FileSystem& files, const TrainPlan& plan) {
  if (train::saved_recipe(files, train::home_of(plan.recipe, plan.run_folder))) return;
  const auto started = train::started_recipe(files, plan.run_folder);
  if (!started) return;
  train::check_unedited(spec::parse_recipe(started->yaml, started->path, {}, models_folder(files)),
                        plan.recipe, plan.run_folder,
                        read_recipe(files, train::recipe_path(plan.run_folder), {}));
}

std::string recompute_line(const spec::Recipe& recipe) {
  const std::string text = spec::recompute_text(recipe.recompute);
  const int64_t freed = spec::bytes_freed_by_recompute(recipe);
  return freed == 0 ? text : text + ": " + format_bytes(static_cast<double>(freed)) + " less";
}

}  // namespace

TrainPlan make_train_plan(FileSystem& files, const TrainArguments& arguments, int64_t ranks,
                          const std::string& origin) {
  TrainPlan plan;
  const bool is_run =
      files.is_directory(arguments.target) && files.exists(train::recipe_path(arguments.target));
  const std::string path =
      is_run ? train::recipe_path(arguments.target) : find_recipe(files, arguments.target);
  if (is_run) check_recipe_file(files, arguments);
  plan.recipe = read_recipe(files, path, all_overrides(files, arguments.with, arguments.overrides),
                            ranks > 0);
  train::resolve_teacher(files, plan.recipe);
  if (ranks > 0) plan.mesh_changes = spec::fit_mesh(plan.recipe, ranks, origin);
  if (is_run && !arguments.run.empty() && arguments.run != arguments.target) {
    fail(ErrorKind::usage, "--run: '{}' is not the run to resume, '{}'; drop one of the two",
         arguments.run, arguments.target);
  }
  if (is_run) {
    plan.run_folder = arguments.target;
  } else {
    plan.run_folder = arguments.run.empty() ? default_run_folder(plan.recipe, path) : arguments.run;
  }
  train::check_run_folder(files, plan.run_folder);
  locate_source(files, plan.recipe, path);
  name_corpora(files, plan.recipe, plan.run_folder);
  check_not_import(files, plan.run_folder);
  check_not_started(files, plan);
  const std::string home = train::home_of(plan.recipe, plan.run_folder);
  if (!arguments.force_resume) {  // else the session warns
    train::check_owner(files, train::read_owner(files, home), home, plan.run_folder);
  }
  // Until its first checkpoint a run has nothing that another recipe could spoil, unless hosts may
  // have copies of it in their memory: only its ranks know whether they do. But its own file says
  // nothing else unnoticed.
  const bool is_saved =
      (arguments.copy_every > 0 && train::may_have_peer_copies(files, plan.run_folder)) ||
      !checkpoint::list_checkpoints(files, train::checkpoints_path(home)).empty();
  if (is_run) insist(arguments, [&] { check_unedited_file(files, plan); });
  if (is_saved) {
    insist(arguments, [&] { check_same_run(files, plan, is_run, arguments.force_resume); });
  }
  if (plan.recipe.run.name.empty()) plan.recipe.run.name = base_name(plan.run_folder);
  return plan;
}

void print_train_plan(const TrainPlan& plan, int64_t memory_bytes, bool verbose) {
  const spec::Recipe& recipe = plan.recipe;
  const spec::ParamTable table = spec::param_table(recipe.model, recipe.lora);
  std::string parameters = format_count(static_cast<double>(table.count()));
  if (recipe.lora.enabled()) {
    parameters += fmt::format(", {} of them trained",
                              format_count(static_cast<double>(table.trainable_count())));
  }
  if (recipe.distill.enabled()) {
    const auto teacher = static_cast<double>(spec::param_table(*recipe.distill.model).count());
    parameters += fmt::format(", and the teacher's {}", format_count(teacher));
  }
  const double flops = spec::model_flops_per_token(recipe);
  const auto tokens = static_cast<double>(recipe.batch.global * recipe.batch.sequence);
  const int64_t ranks = recipe.parallel.world();
  const std::string memory =
      format_bytes(static_cast<double>(memory_bytes)) + (ranks > 1 ? " per rank" : "");
  std::vector<std::pair<std::string, std::string>> rows = {
      {"model", recipe.model.name.empty() ? "unnamed" : recipe.model.name},
      {"parameters", parameters},
      {"FLOPs per token", format_count(flops)},
      {"tokens per step", format_count(tokens)},
      {"steps",
       fmt::format("{}, learning rate {:.6g}", recipe.train.steps, recipe.optimizer.learning_rate)},
      {"precision", spec::name_of(spec::kPrecisionNames, recipe.precision)},
      {"data", spec::blend_text(recipe.data.train)},
      {"memory map", memory},
      {"recompute", recompute_line(recipe)},
      {"run folder", plan.run_folder}};
  if (recipe.offload.enabled()) {
    rows.emplace_back(
        "offload",
        fmt::format("{}: {} in memory of the host", spec::offload_text(recipe.offload),
                    format_bytes(static_cast<double>(spec::memory_map(recipe).host_bytes()))));
  }
  if (ranks > 1) {
    rows.emplace_back("ranks", fmt::format("{}: {}", ranks, spec::mesh_text(recipe.parallel)));
  }
  for (const std::string& change : plan.mesh_changes) rows.emplace_back("", change);
  if (verbose) print_message(spec::to_yaml(recipe));
  print_message(format_pairs(rows));
}

std::string to_text(const TrainPlan& plan) {
  return dump_json({{"recipe", spec::to_yaml(plan.recipe)},
                    {"run_folder", plan.run_folder},
                    {"mesh_changes", plan.mesh_changes}});
}

TrainPlan parse_train_plan(const std::string& text) {
  const Json json = parse_json(text, "the plan of rank 0");
  TrainPlan plan;
  plan.recipe =
      spec::parse_recipe(json.at("recipe").get<std::string>(), "the plan of rank 0", {}, "");
  plan.run_folder = json.at("run_folder").get<std::string>();
  plan.mesh_changes = json.at("mesh_changes").get<std::vector<std::string>>();
  return plan;
}

}  // namespace tutti::launch
