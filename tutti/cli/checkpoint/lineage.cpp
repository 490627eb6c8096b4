#include "tutti/cli/checkpoint/lineage.h"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/store/verify.h"
#include "tutti/cli/checkpoint/subject.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/jobs/approval.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/people/visible.h"
#include "tutti/object/file_system.h"
#include "tutti/telemetry/event_reader.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

struct LineageArguments {
  ControlOptions control;
  std::string path;
  std::string remark;
  std::string project;
};

// What the events of the run record up to that checkpoint.
struct RunEvents {
  std::vector<telemetry::CorpusDescribed> corpora;
  telemetry::MachineDescribed program;
  std::optional<telemetry::EvaluationDone> evaluation;  // the newest
  std::string recipe;
  Json initial_weights;
  bool complete = false;  // the events record this checkpoint
};

RunEvents read_run_events(const std::string& run, int64_t step) {
  RunEvents now;
  RunEvents at_checkpoint;
  const auto note = [&](const telemetry::Event& event) {
    if (const auto* started = std::get_if<telemetry::RunStarted>(&event.body)) {
      now.corpora.clear();
      now.recipe = started->details.value("recipe", "");
      if (started->details.contains("initial_weights")) {
        now.initial_weights = started->details["initial_weights"];
      }
    } else if (const auto* machine = std::get_if<telemetry::MachineDescribed>(&event.body)) {
      now.program = *machine;
    } else if (const auto* corpus = std::get_if<telemetry::CorpusDescribed>(&event.body)) {
      now.corpora.push_back(*corpus);
    } else if (const auto* done = std::get_if<telemetry::EvaluationDone>(&event.body)) {
      if (done->step <= step) now.evaluation = *done;
    } else if (const auto* saved = std::get_if<telemetry::CheckpointSaved>(&event.body)) {
      if (saved->step != step) return;
      at_checkpoint = now;
      at_checkpoint.complete = true;
    }
  };
  FileSystem& files = object::file_system();
  const std::string path = train::events_path(run);
  if (files.exists(path)) telemetry::read_events(files, path, note);
  return at_checkpoint.complete ? at_checkpoint : now;
}

// What the control plane knows, where there is one; only what the caller may see.
struct Known {
  std::optional<control::Job> job;
  std::vector<control::Approval> approvals;
};

Json corpus_json(const telemetry::CorpusDescribed& corpus) {
  Json json = telemetry::to_json(telemetry::Event{0, corpus});
  for (const char* key : {"event", "time", "wall_seconds"}) json.erase(key);
  return json;
}

Json lineage_json(const CheckpointSubject& subject, const RunEvents& events, const Known& known) {
  const checkpoint::State& state = subject.manifest.state;
  Json json = {{"checkpoint", subject.path},
               {"step", state.step},
               {"created", subject.manifest.created},
               {"manifest_sha256", subject.manifest_sha256},
               {"program",
                {{"version", events.program.version.empty() ? subject.manifest.tutti_version
                                                            : events.program.version},
                 {"executable_hash", events.program.executable_hash},
                 {"libraries", events.program.libraries}}},
               {"recipe",
                {{"hash", state.recipe_hash},
                 {"is_the_recorded_one", hash_hex(hash_text(events.recipe)) == state.recipe_hash},
                 {"yaml", events.recipe}}},
               {"events_tell_of_it", events.complete},
               {"initial_weights", events.initial_weights}};
  if (state.base) {
    json["base"] = {{"path", state.base->path}, {"manifest_xxh3", state.base->manifest_xxh3}};
  }
  if (state.teacher) {
    json["teacher"] = {{"path", state.teacher->checkpoint.path},
                       {"manifest_xxh3", state.teacher->checkpoint.manifest_xxh3}};
  }
  json["corpora"] = Json::array();
  for (const auto& corpus : events.corpora) json["corpora"].push_back(corpus_json(corpus));
  json["evaluation"] = !events.evaluation ? Json()
                                          : Json{{"step", events.evaluation->step},
                                                 {"loss", events.evaluation->loss},
                                                 {"tokens", events.evaluation->tokens}};
  json["job"] = !known.job ? Json()
                           : Json{{"job", known.job->id},
                                  {"user", known.job->user},
                                  {"project", known.job->request.project},
                                  {"submitted", time_text(known.job->submitted_ms)}};
  json["approvals"] = Json::array();
  for (const control::Approval& approval : known.approvals) {
    json["approvals"].push_back({{"who", approval.who},
                                 {"time", time_text(approval.time_ms)},
                                 {"project", approval.project},
                                 {"remark", approval.remark}});
  }
  return json;
}

std::string lineage_text(const CheckpointSubject& subject, const RunEvents& events,
                         const Known& known) {
  const checkpoint::State& state = subject.manifest.state;
  const auto or_unknown = [](const std::string& text) {
    return text.empty() ? std::string("not stated") : text;
  };
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"checkpoint", fmt::format("{}, step {}", subject.path, state.step)},
      {"manifest", "SHA-256 " + subject.manifest_sha256},
      {"program",
       fmt::format("{} {}", or_unknown(events.program.version), events.program.executable_hash)},
      {"recipe", state.recipe_hash + (hash_hex(hash_text(events.recipe)) == state.recipe_hash
                                          ? ", as recorded"
                                          : ", which the events do not have")}};
  if (state.base) pairs.emplace_back("below its adapters", state.base->path);
  if (state.teacher) pairs.emplace_back("teacher", state.teacher->checkpoint.path);
  if (!events.initial_weights.is_null()) {
    pairs.emplace_back("began with", events.initial_weights.value("path", ""));
  }
  for (const auto& corpus : events.corpora) {
    pairs.emplace_back(corpus.role, fmt::format("{}, tokens {}, licence {}, class {}", corpus.path,
                                                or_unknown(corpus.hash), or_unknown(corpus.licence),
                                                or_unknown(corpus.data_class)));
    for (const auto& source : corpus.sources) {
      pairs.emplace_back("  from",
                         fmt::format("{} {}, licence {}, class {}", source.path, source.hash,
                                     or_unknown(source.licence), or_unknown(source.data_class)));
    }
  }
  pairs.emplace_back("evaluation", !events.evaluation ? std::string("none")
                                                      : fmt::format("loss {:.4f} after step {}",
                                                                    events.evaluation->loss,
                                                                    events.evaluation->step));
  pairs.emplace_back("job", !known.job ? std::string("none that you may see")
                                       : fmt::format("{} of {} in project {}", known.job->id,
                                                     known.job->user, known.job->request.project));
  if (known.approvals.empty()) pairs.emplace_back("approved by", "none");
  for (const control::Approval& approval : known.approvals) {
    pairs.emplace_back("approved by",
                       fmt::format("{} on {}{}{}", approval.who, time_text(approval.time_ms),
                                   approval.remark.empty() ? "" : ": ", approval.remark));
  }
  return format_pairs(pairs);
}

int run_lineage(const LineageArguments& arguments) {
  const CheckpointSubject subject = find_subject(arguments.path);
  const RunEvents events = read_run_events(subject.run, subject.manifest.state.step);
  Known known;
  if (exists(folder_of(arguments.control))) {
    ControlSession session(arguments.control);
    known.job = control::visible_job_of_run(session.caller(), subject.run);
    known.approvals = control::approvals_of(session.caller(), subject.manifest_sha256);
  }
  if (arguments.control.json) {
    print_json(lineage_json(subject, events, known));
  } else {
    print_text(lineage_text(subject, events, known));
  }
  return exit_ok;
}

int run_approve(const LineageArguments& arguments) {
  const CheckpointSubject subject = find_subject(arguments.path);
  {
    telemetry::ProgressBar progress("verify " + base_name(subject.path), "bytes");
    const auto findings = checkpoint::verify_checkpoint(
        object::file_system(), subject.path,
        [&](int64_t done, int64_t total) { progress.update(done, total); });
    progress.finish();
    if (!findings.empty()) {
      fail(ErrorKind::corrupt, "{}/{}: {}; not approved", subject.path, findings[0].file,
           findings[0].what);
    }
  }
  ControlSession session(arguments.control);
  control::Approval approval;
  approval.project =
      arguments.project.empty() ? project_of(session.caller(), subject) : arguments.project;
  approval.manifest_sha256 = subject.manifest_sha256;
  approval.path = subject.path;
  approval.step = subject.manifest.state.step;
  approval.remark = arguments.remark;
  control::approve(session.caller(), approval);
  if (arguments.control.json) {
    print_json({{"checkpoint", subject.path},
                {"manifest_sha256", subject.manifest_sha256},
                {"project", approval.project},
                {"who", session.caller().user}});
  } else {
    print_text(fmt::format("{}: approved by {}\n", subject.path, session.caller().user));
  }
  return exit_ok;
}

}  // namespace

void add_checkpoint_lineage(CLI::App& checkpoint, Action& action) {
  const auto lineage = std::make_shared<LineageArguments>();
  CLI::App* command = checkpoint.add_subcommand(
      "lineage", "Origin of a checkpoint: corpora, licences, recipe, program, job, approvals");
  command->add_option("RUN", lineage->path, "Run folder (its newest), or a checkpoint")->required();
  add_control_options(*command, lineage->control);
  command->footer("Example:\n  tutti checkpoint lineage runs/demo-20260131-120000");
  command->callback([lineage, &action] { action = [lineage] { return run_lineage(*lineage); }; });

  const auto approve = std::make_shared<LineageArguments>();
  command =
      checkpoint.add_subcommand("approve", "Verify a checkpoint and sign it off in the audit log");
  command->add_option("RUN", approve->path, "Run folder (its newest), or a checkpoint")->required();
  command->add_option("--project", approve->project,
                      "Approve it for this project; default that of its job");
  command->add_option("--remark", approve->remark, "Reason, for readers of the audit log");
  add_control_options(*command, approve->control);
  command->footer(
      "Needs the role of an operator in the project. The audit log names the\n"
      "checkpoint by its contents.\n\n"
      "Example:\n  tutti checkpoint approve runs/demo-20260131-120000 --remark 'evaluated by ada'");
  command->callback([approve, &action] { action = [approve] { return run_approve(*approve); }; });
}

}  // namespace tutti::cli
