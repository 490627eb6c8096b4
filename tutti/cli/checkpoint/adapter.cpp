// tutti checkpoint merge, export-adapter: adapters on their way out of a run.
#include "tutti/checkpoint/huggingface/adapter.h"

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/new_folder.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/store/writer.h"
#include "tutti/cli/data/label.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/object/file_system.h"
#include "tutti/spec/model/params.h"
#include "tutti/telemetry/events.h"
#include "tutti/train/session/merged_run.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/step/initial_weights.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::cli {
namespace {

struct AdapterArguments {
  std::string run;
  std::string out;
  std::string base;
  bool best = false;
  bool json = false;
};

train::LoadedRun load_adapters(FileSystem& files, const AdapterArguments& arguments) {
  train::LoadedRun run = train::load_run(files, arguments.run, arguments.best);
  if (!run.recipe.lora.enabled()) {
    fail(ErrorKind::usage, "'{}' has no adapters: its recipe has lora.rank 0", arguments.run);
  }
  return run;
}

spec::ParamLayout layout_of(const spec::Recipe& recipe) {
  return spec::param_layout(spec::param_table(recipe.model, recipe.lora));
}

// The events of the merged run: whose parameters it has, and all corpora that they learned from.
void write_origins(FileSystem& files, const NewFolder& out, const spec::Recipe& recipe,
                   const train::LoadedRun& run, const Origins& origins) {
  telemetry::RunStarted started;
  started.run = out.path();
  started.name = recipe.run.name;
  started.parameters = spec::param_table(recipe.model).count();
  started.steps = started.first_step = run.step;
  started.details = Json{{"owner", recipe.run.owner},
                         {"project", recipe.run.project},
                         {"data_class", recipe.run.data_class},
                         {"recipe", spec::to_yaml(recipe)},
                         {"merged_adapters", run.checkpoint}};
  const checkpoint::Base base = train::base_of(files, run.base);
  started.details["initial_weights"] =
      Json{{"path", base.path}, {"manifest_xxh3", base.manifest_xxh3}};
  if (!origins.label.unlabelled.empty()) {
    started.details[kUnlabelledOrigin] = origins.label.unlabelled;
  }
  std::string lines = dump_json(telemetry::to_json(telemetry::Event{wall_seconds(), started}));
  for (const Json& corpus : origins.corpora) lines += "\n" + dump_json(corpus);
  write_file_atomic(files, train::events_path(out.partial()), lines + "\n");
}

int run_merge(const AdapterArguments& arguments) {
  FileSystem& files = object::file_system();
  train::LoadedRun run = load_adapters(files, arguments);
  NewFolder out(files, arguments.out);
  // From here on nothing but this folder says what the merged parameters have learned from.
  const Origins origins = find_origins(files, arguments.run, {run.base});
  run.recipe.run.data_class = origins.label.data_class;
  run.recipe.run.name = base_name(out.path());
  const spec::Recipe recipe = train::merged_recipe(run);
  write_file_atomic(files, train::recipe_path(out.partial()), spec::to_yaml(recipe));
  write_origins(files, out, recipe, run, origins);
  train::copy_companions(files, parent_path(parent_path(run.checkpoint)), run.recipe,
                         out.partial());
  checkpoint::Written written =
      train::write_merged(files, run, train::checkpoints_path(out.partial()));
  out.commit();
  written.path = join_path(train::checkpoints_path(out.path()), base_name(written.path));
  if (arguments.json) {
    print_json({{"run", arguments.run},
                {"checkpoint", run.checkpoint},
                {"base", run.base},
                {"out", arguments.out},
                {"merged", written.path},
                {"bytes", written.bytes}});
  } else {
    print_text(format_pairs({{"adapters", run.checkpoint},
                             {"base", run.base},
                             {"merged", written.path},
                             {"size", format_bytes(static_cast<double>(written.bytes))}}));
  }
  return exit_ok;
}

int run_export(const AdapterArguments& arguments) {
  FileSystem& files = object::file_system();
  const train::LoadedRun run = load_adapters(files, arguments);
  NewFolder out(files, arguments.out);
  const std::string base = arguments.base.empty() ? run.base : arguments.base;
  const checkpoint::ExportedAdapter exported = checkpoint::export_adapter(
      files, layout_of(run.recipe), run.recipe.model, run.master.data(), base, out.partial());
  out.commit();
  if (arguments.json) {
    print_json({{"run", arguments.run},
                {"checkpoint", run.checkpoint},
                {"out", arguments.out},
                {"tensors", exported.tensors},
                {"bytes", exported.bytes},
                {"config", exported.config}});
  } else {
    print_text(format_pairs({{"adapters", run.checkpoint},
                             {"base model", base},
                             {"modules", exported.config.at("target_modules").dump()},
                             {"size", format_bytes(static_cast<double>(exported.bytes))},
                             {"written", arguments.out}}));
  }
  return exit_ok;
}

CLI::App* add_command(CLI::App& group, const char* name, const char* what,
                      const std::shared_ptr<AdapterArguments>& arguments) {
  CLI::App* command = group.add_subcommand(name, what);
  command->add_option("RUN", arguments->run, "Run folder, or one checkpoint folder in it")
      ->required();
  command->add_option("--out", arguments->out, "New folder")->required()->type_name("FOLDER");
  command->add_flag("--best", arguments->best,
                    "The checkpoint of the lowest validation loss, not the newest");
  return command;
}

}  // namespace

void add_checkpoint_adapter(CLI::App& group, Action& action) {
  const auto merge = std::make_shared<AdapterArguments>();
  CLI::App* merge_command =
      add_command(group, "merge", "Merge adapters into their base model", merge);
  add_json_option(*merge_command, merge->json);
  merge_command->footer(
      "The new folder is a run: generate, eval, export and checkpoint.initialize_from take it.\n\n"
      "Example:\n  tutti checkpoint merge runs/tuned --out runs/tuned-merged");
  merge_command->callback([merge, &action] { action = [merge] { return run_merge(*merge); }; });

  const auto out = std::make_shared<AdapterArguments>();
  CLI::App* export_command =
      add_command(group, "export-adapter", "Export adapters for Hugging Face PEFT", out);
  export_command
      ->add_option("--base", out->base,
                   "Name or folder of the model in transformers; default the base checkpoint")
      ->type_name("MODEL");
  add_json_option(*export_command, out->json);
  export_command->footer(
      "Example:\n  tutti checkpoint export-adapter runs/tuned --base gpt2 --out tuned-peft");
  export_command->callback([out, &action] { action = [out] { return run_export(*out); }; });
}

}  // namespace tutti::cli
