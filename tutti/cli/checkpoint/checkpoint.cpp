#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/store/verify.h"
#include "tutti/cli/checkpoint/lineage.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/object/file_system.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/run_history.h"

namespace tutti::cli {
namespace {

struct CheckpointArguments {
  std::string path;
  bool json = false;
};

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// The folder of step folders: RUN/checkpoints, or `path` itself when it holds them.
std::string checkpoints_folder(FileSystem& files, const std::string& path) {
  if (!files.is_directory(path)) {
    fail(ErrorKind::not_found, "'{}' is not a folder; give a run folder", path);
  }
  const std::string inside = train::find_checkpoints(files, path);
  return files.is_directory(inside) ? inside : path;
}

std::vector<checkpoint::CheckpointInfo> checkpoints_of(FileSystem& files, const std::string& path) {
  const std::string folder = checkpoints_folder(files, path);
  auto infos = checkpoint::list_checkpoints(files, folder);
  if (infos.empty()) {
    fail(ErrorKind::not_found, "'{}' holds no checkpoints (step-NNNNNNNN folders)", folder);
  }
  return infos;
}

Json to_json(const checkpoint::CheckpointInfo& info) {
  return {{"step", info.step},
          {"path", info.path},
          {"valid", info.valid},
          {"problem", info.valid ? Json(nullptr) : Json(info.problem)},
          {"bytes", info.bytes},
          {"validation_loss", info.validation_loss ? Json(*info.validation_loss) : Json(nullptr)},
          {"created", info.created}};
}

int run_list(const CheckpointArguments& arguments) {
  const auto infos = checkpoints_of(object::file_system(), arguments.path);
  if (arguments.json) {
    Json list = Json::array();
    for (const auto& info : infos) list.push_back(to_json(info));
    print_json({{"run", arguments.path}, {"checkpoints", std::move(list)}});
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {
      {"step", "validation loss", "size", "created", "state", "path"}};
  for (const auto& info : infos) {
    rows.push_back({std::to_string(info.step),
                    info.validation_loss ? fmt::format("{:.4f}", *info.validation_loss) : "-",
                    format_bytes(static_cast<double>(info.bytes)), info.created,
                    info.valid           ? "complete"
                    : info.is_unfinished ? "unfinished: " + info.problem
                                         : "damaged: " + info.problem,
                    info.path});
  }
  print_text(format_table(rows));
  return exit_ok;
}

std::vector<checkpoint::Finding> verify_one(FileSystem& files, const std::string& path) {
  telemetry::ProgressBar progress("verify " + base_name(path), "bytes");
  auto findings = checkpoint::verify_checkpoint(
      files, path, [&](int64_t done, int64_t total) { progress.update(done, total); });
  progress.finish();
  return findings;
}

// The checkpoints to verify, and step folders that are none.
struct Verifiable {
  std::vector<std::string> checkpoints;
  std::vector<std::string> unfinished;
};

// A folder without a manifest is what an interrupted save left, or an interrupted removal of an old
// checkpoint. Of the newest, which the run's events record, the manifest is lost.
Verifiable find_verifiable(FileSystem& files, const std::string& path) {
  if (checkpoint::parse_step_folder_name(base_name(path))) return {{path}, {}};
  const std::string folder = checkpoints_folder(files, path);
  const auto infos = checkpoints_of(files, path);
  const std::set<int64_t> saved =
      train::read_history(files, folder == path ? parent_path(path) : path).saved_steps;
  int64_t newest = -1;
  for (const auto& info : infos) {
    if (info.valid) newest = info.step;
  }
  Verifiable found;
  for (const auto& info : infos) {
    const bool is_lost = info.step > newest && saved.count(info.step) > 0;
    auto& list = info.is_unfinished && !is_lost ? found.unfinished : found.checkpoints;
    list.push_back(info.path);
  }
  if (found.checkpoints.empty()) {
    fail(ErrorKind::not_found, "'{}' holds no checkpoint, only what an interrupted save left: {}",
         path, join(found.unfinished, ", "));
  }
  return found;
}

int run_verify(const CheckpointArguments& arguments) {
  FileSystem& files = object::file_system();
  const auto [paths, unfinished] = find_verifiable(files, without_trailing_slash(arguments.path));
  bool intact = true;
  Json list = Json::array();
  for (const std::string& step_folder : paths) {
    const auto findings = verify_one(files, step_folder);
    intact = intact && findings.empty();
    Json damage = Json::array();
    for (const checkpoint::Finding& finding : findings) {
      damage.push_back(
          {{"file", finding.file}, {"offset", finding.offset}, {"what", finding.what}});
    }
    list.push_back(
        {{"path", step_folder}, {"intact", findings.empty()}, {"findings", std::move(damage)}});
    if (arguments.json) continue;
    print_text(fmt::format("{}: {}\n", step_folder, findings.empty() ? "intact" : "DAMAGED"));
    for (const checkpoint::Finding& finding : findings) {
      print_text(fmt::format("  {} at byte {}: {}\n", finding.file, finding.offset, finding.what));
    }
  }
  if (arguments.json) {
    print_json({{"intact", intact}, {"checkpoints", std::move(list)}, {"unfinished", unfinished}});
    return intact ? exit_ok : exit_failed;
  }
  for (const std::string& step_folder : unfinished) {
    print_text(
        fmt::format("{}: unfinished: a save of it, or its removal, was interrupted; the next "
                    "session of the run removes it\n",
                    step_folder));
  }
  return intact ? exit_ok : exit_failed;
}

}  // namespace

void add_checkpoint(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("checkpoint", "List, verify, import and export checkpoints");
  group->require_subcommand(1);
  group->footer("Example:\n  tutti checkpoint verify runs/demo-20260131-120000");

  const auto list = std::make_shared<CheckpointArguments>();
  CLI::App* list_command = group->add_subcommand("list", "Checkpoints of a run");
  list_command->add_option("RUN", list->path, "Run folder")->required();
  add_json_option(*list_command, list->json);
  list_command->footer("Example:\n  tutti checkpoint list runs/demo-20260131-120000");
  list_command->callback([list, &action] { action = [list] { return run_list(*list); }; });

  const auto verify = std::make_shared<CheckpointArguments>();
  CLI::App* verify_command =
      group->add_subcommand("verify", "Read every byte and compare all checksums");
  verify_command
      ->add_option("RUN", verify->path, "Run folder (all its checkpoints), or one of them")
      ->required();
  add_json_option(*verify_command, verify->json);
  verify_command->footer(
      "Exit code 1 if anything is damaged. Leftovers of an interrupted save are listed, not an "
      "error."
      "\n\n"
      "Example:\n  tutti checkpoint verify runs/demo-20260131-120000/checkpoints/step-00000200");
  verify_command->callback(
      [verify, &action] { action = [verify] { return run_verify(*verify); }; });

  add_checkpoint_import(*group, action);
  add_checkpoint_export(*group, action);
  add_checkpoint_adapter(*group, action);
  add_checkpoint_lineage(*group, action);
}

}  // namespace tutti::cli
