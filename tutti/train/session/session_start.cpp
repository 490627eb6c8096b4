// What a session does before its first step.
#include <memory>
#include <random>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/machine.h"
#include "tutti/checkpoint/store/retention.h"
#include "tutti/engine/backend.h"
#include "tutti/spec/mesh/fit_mesh.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/train/session/lineage.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_history.h"
#include "tutti/train/session/session_internal.h"
#include "tutti/train/step/initial_weights.h"
#include "tutti/train/step/teacher.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::train {
namespace {

data::DatasetOptions dataset_options(const spec::Recipe& recipe) {
  return {recipe.batch.sequence,
          recipe.data.packing,
          recipe.model.vocabulary,
          recipe.train.seed,
          {recipe.data.cache, recipe.data.cache_bytes}};
}

}  // namespace

std::string Session::checkpoint_folder() const {
  return checkpoints_path(home_of(recipe_, options_.run_folder));
}

void Session::open_run_folder() {
  HomeOwner owner;
  if (consensus_.leads()) {
    files_.create_directories(options_.run_folder);
    owner = find_owner();
  }
  open_copies();
  const std::string folder = checkpoint_folder();
  const auto restored = restore_newest(files_, folder, trainer_, consensus_, copies_.get(),
                                       [&](const std::string& text) { telemetry_.warn(text); });
  if (consensus_.leads()) check_history(restored);
  if (restored) {
    mlperf_.refuse_resume(options_.run_folder);
    check_same_corpora(restored->state.corpora, state_.corpora, *train_set_, options_.run_folder);
    const Json corpora = state_.corpora;
    state_ = restored->state;
    state_.corpora = corpora;
    if (restored->durable) saved_step_ = state_.step;
    telemetry_.info(fmt::format("resuming at step {} of {}{}", state_.step, recipe_.train.steps,
                                restored->durable ? "" : ", from the memory of its hosts"));
  } else if (recipe_.checkpoint.initialize_from.empty()) {
    trainer_.initialize();
  } else {
    start_from_weights(find_weights(files_, recipe_.checkpoint.initialize_from));
  }
  if (restored && recipe_.lora.enabled()) {
    if (!state_.base) {
      fail(ErrorKind::corrupt, "'{}' holds adapters without saying what is below them", folder);
    }
    load_frozen(find_base(files_, *state_.base, recipe_.checkpoint.initialize_from));
  }
  if (recipe_.distill.enabled()) take_teacher(restored.has_value());
  name_run(owner);
  if (consensus_.leads()) {
    const std::string home = home_of(recipe_, options_.run_folder);
    claim_home(files_, owner, home, options_.run_folder, state_.run_id);
    write_file_atomic(files_, recipe_path(options_.run_folder), spec::to_yaml(recipe_));
    // Only now that the checks above have held: another run's home stays as it is.
    if (home != options_.run_folder) {
      copy_companions(files_, options_.run_folder, recipe_, home);
      write_file_atomic(files_, recipe_path(home), spec::to_yaml(recipe_));
    }
    remove_leftovers(folder);
  }
  elapsed_before_ = state_.elapsed_seconds;
  // The target may have changed since it was reached.
  const auto& target = recipe_.train.target_validation_loss;
  if (!target || !state_.validation_loss || *state_.validation_loss > *target) {
    state_.time_to_target_seconds.reset();
  }
  open_writer();
  if (recipe_.checkpoint.sample_tokens > 0 && consensus_.leads()) {
    sampler_ = std::make_unique<CheckpointSampler>(files_, recipe_, options_.run_folder);
  }
  if (copies_) check_room_for_copies();
}

// Of the home, where it is this run's.
HomeOwner Session::find_owner() {
  const std::string home = home_of(recipe_, options_.run_folder);
  HomeOwner owner = read_owner(files_, home);
  try {
    check_owner(files_, owner, home, options_.run_folder);
  } catch (const Error& error) {
    if (!options_.force_resume || error.kind() != ErrorKind::usage) throw;
    telemetry_.warn(fmt::format("{}; continuing because of --force-resume", error.what()));
    owner.run_id.clear();  // it is taken over
  }
  return owner;
}

// Lost work, or another run's, is never resumed silently.
void Session::check_history(const std::optional<Restored>& restored) {
  const RunHistory history = read_history(files_, options_.run_folder);
  std::string problem;
  std::string remedy;
  const std::string before = find_checkpoints(files_, options_.run_folder);
  const int64_t newest = history.saved_steps.empty() ? -1 : *history.saved_steps.rbegin();
  const bool is_known = files_.exists(recipe_path(options_.run_folder));
  if (is_known && before != checkpoint_folder() &&
      (restored ? restored->state.step : -1) < newest) {
    problem = fmt::format(
        "checkpoint.store was changed: the checkpoints of the run, up to step {}, are in '{}', not "
        "in '{}'",
        newest, before, checkpoint_folder());
    remedy = fmt::format(
        "set checkpoint.store as it was ('{}' has it), copy the checkpoints, start a new run "
        "(another --run or run.name), or continue without them (--force-resume)",
        recipe_path(options_.run_folder));
  } else if (!restored && !history.saved_steps.empty()) {
    problem = fmt::format(
        "'{}' holds no complete checkpoint, but the events of the run record that step {} was "
        "saved",
        checkpoint_folder(), *history.saved_steps.rbegin());
    remedy =
        "put it back, start a new run (another --run or run.name), or begin this one again at "
        "step 0 (--force-resume)";
  } else if (restored && !restored->state.run_id.empty() && !history.ids.empty() &&
             history.ids.count(restored->state.run_id) == 0) {
    problem =
        fmt::format("'{}' is a checkpoint of another run ({}), step {} of {} here", restored->path,
                    restored->state.run_id, restored->state.step, recipe_.train.steps);
    remedy =
        "take it away, start a new run from it (checkpoint.initialize_from), or resume from it "
        "anyway (--force-resume)";
  }
  if (problem.empty()) return;
  if (!options_.force_resume) fail(ErrorKind::usage, "{}; {}", problem, remedy);
  telemetry_.warn(problem + "; continuing because of --force-resume");
}

// Of saves that were interrupted. What cannot be removed does not cause a run to fail.
void Session::remove_leftovers(const std::string& folder) {
  try {
    for (const std::string& path : checkpoint::remove_unfinished(files_, folder)) {
      telemetry_.info(fmt::format("removed '{}', which an interrupted save left", path));
    }
  } catch (const Error& error) {
    telemetry_.warn(fmt::format("leftovers of an interrupted save remain: {}", error.what()));
  }
}

// A run has its name for its checkpoints from its first session on, and keeps it in a home that it
// has claimed also before the first of them.
void Session::name_run(const HomeOwner& owner) {
  std::random_device chance;
  uint64_t fresh = uint64_t{chance()} << 32 | chance();
  if (!owner.run_id.empty()) fresh = std::stoull(owner.run_id, nullptr, 16);
  fresh = consensus_.of_leader(fresh);
  if (state_.run_id.empty()) state_.run_id = hash_hex(fresh);
}

void Session::start_from_weights(const std::string& path) {
  trainer_.state().initialize_trainable();
  load_frozen(path);
  initial_weights_ = base_of(files_, path);
  if (recipe_.lora.enabled()) state_.base = initial_weights_;
  telemetry_.info(fmt::format("starting from the parameters of {}", path));
}

// All parameters, where none is frozen.
void Session::load_frozen(const std::string& path) {
  load_weights(files_, path, recipe_,
               [&](const spec::PlacedParam& placed, const std::vector<float>& values) {
                 trainer_.state().set_parameter(placed, values.data());
               });
  trainer_.state_changed();
}

void Session::take_teacher(bool resumed) {
  if (resumed && !state_.teacher) {
    fail(ErrorKind::corrupt, "'{}' was saved without saying which teacher it learned from",
         checkpoint_folder());
  }
  const LoadedTeacher teacher = load_teacher(files_, recipe_, state_.teacher);
  trainer_.set_teacher(teacher.master.data());
  state_.teacher = teacher.record;
  telemetry_.info(fmt::format("learning from {}, temperature {}, weight {}",
                              teacher.record.checkpoint.path, recipe_.distill.temperature,
                              recipe_.distill.weight));
}

void Session::open_corpora() {
  const data::DatasetOptions options = dataset_options(recipe_);
  train_set_ =
      std::make_shared<const data::Dataset>(files_, recipe_.data.train, options, "data.train");
  state_.corpora = identify_corpora(files_, *train_set_);
  if (!recipe_.data.validation.empty()) {
    validation_set_ = std::make_shared<const data::Dataset>(files_, recipe_.data.validation,
                                                            options, "data.validation");
  }
}

// Ranks of one dp coordinate read the same samples.
void Session::start_loaders() {
  const spec::Mesh& mesh = recipe_.parallel;
  const int64_t dp = consensus_.ranks().at.dp;
  data::TrainLoaderOptions train;
  train.rows = recipe_.batch.micro;
  train.global_batch = recipe_.batch.global;
  train.slice_count = recipe_.batch.global / mesh.dp;
  train.slice_first = dp * train.slice_count;
  train.start_step = state_.step;
  train_data_ = std::make_unique<data::Loader>(train_set_, train);
  for (const std::string& line : train_set_->describe()) telemetry_.info(line);
  if (!validation_set_) return;
  data::EvalLoaderOptions validation;
  validation.rows = recipe_.batch.micro;
  validation.max_samples = recipe_.evaluate.samples;
  validation.part = dp;
  validation.parts = mesh.dp;
  validation_data_ = std::make_unique<data::Loader>(validation_set_, validation);
}

void Session::announce() {
  summary_.model_flops_per_token = spec::model_flops_per_token(recipe_);
  for (const spec::ArenaPlan& arena : trainer_.memory().map().arenas) {
    summary_.memory.push_back({arena.name, arena.bytes});
  }
  summary_.recompute = spec::recompute_text(recipe_.recompute);
  summary_.recompute_freed_bytes = spec::bytes_freed_by_recompute(recipe_);
  const Machine machine = describe_machine();
  telemetry::RunStarted event;
  event.run = options_.run_folder;
  event.name = recipe_.run.name;
  const spec::ParamTable parameters = spec::param_table(recipe_.model, recipe_.lora);
  event.parameters = parameters.count();
  event.steps = recipe_.train.steps;
  event.first_step = state_.step;
  event.tokens_per_step = step_rows();
  event.flops_per_token = summary_.model_flops_per_token;
  event.gemm_peak_flops = summary_.gemm_peak_flops;
  event.target_loss = recipe_.train.target_validation_loss;
  event.mfu_formula = spec::model_flops_formula(recipe_);
  if (state_.teacher) event.teacher = describe_teacher(recipe_, *state_.teacher);
  event.details = Json{{"cpu", machine.cpu},
                       {"cores", machine.cores},
                       {"host", machine.host},
                       {"instruction_set", engine::cpu_isa()},
                       {"owner", recipe_.run.owner},
                       {"project", recipe_.run.project},
                       {"data_class", recipe_.run.data_class},
                       {"trainable_parameters", parameters.trainable_count()},
                       {"memory_map_bytes", trainer_.memory().map().total_bytes()},
                       {"recipe", spec::to_yaml(recipe_)},
                       {"run_id", state_.run_id}};
  if (recipe_.offload.enabled()) {
    event.details["offload"] = spec::offload_text(recipe_.offload);
    event.details["host_memory_map_bytes"] = trainer_.memory().map().host_bytes();
  }
  const auto devices = engine::find_backend(recipe_.device).devices();
  const std::string emulated = spec::emulation_note(
      recipe_.precision, recipe_.device, devices.empty() ? "" : devices.front().architecture);
  if (!emulated.empty()) telemetry_.info(emulated);
  if (!devices.empty()) {
    event.details["device"] = Json{{"name", devices.front().name},
                                   {"architecture", devices.front().architecture},
                                   {"memory_bytes", devices.front().memory_bytes},
                                   {"driver", devices.front().driver},
                                   {"runtime", devices.front().runtime}};
  }
  if (consensus_.size() > 1) {
    summary_.mesh = spec::mesh_text(recipe_.parallel);
    event.details["ranks"] = consensus_.size();
    event.details["mesh"] = summary_.mesh;
    event.details["generation"] = options_.world->generation();
  }
  if (initial_weights_) {
    event.details["initial_weights"] =
        Json{{"path", initial_weights_->path}, {"manifest_xxh3", initial_weights_->manifest_xxh3}};
  }
  telemetry_.emit(event);

  telemetry::MachineDescribed described = machine_described(recipe_, trainer_.stream());
  described.gemm_peak_flops = summary_.gemm_peak_flops;
  described.nominal_peak_flops = summary_.nominal_peak_flops;
  telemetry_.emit(described);

  const auto describe = [&](const char* role, const data::Dataset& set) {
    for (size_t i = 0; i < set.corpora(); ++i) {
      const data::Corpus& corpus = set.corpus(i);
      telemetry_.emit(describe_corpus(files_, role, corpus.prefix(), corpus));
    }
  };
  describe("training", *train_set_);
  if (validation_set_) describe("validation", *validation_set_);
  report_memory();
}

void Session::report_memory() {
  telemetry_.emit(telemetry::MemoryMeasured{state_.step, resident_bytes(), peak_resident_bytes(),
                                            summary_.memory});
}

}  // namespace tutti::train
