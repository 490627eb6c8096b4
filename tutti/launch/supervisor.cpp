#include "tutti/launch/supervisor.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/message.h"
#include "tutti/base/object_store.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/seal/seal.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/launch/fault_report.h"
#include "tutti/launch/generation.h"
#include "tutti/launch/new_run_folder.h"
#include "tutti/launch/notice.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/launch/progress.h"
#include "tutti/launch/rank_placement.h"
#include "tutti/object/file_system.h"
#include "tutti/spec/mesh/fit_mesh.h"
#include "tutti/train/session/peer_copies.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/session.h"
#include "tutti/train/session/watchdog.h"

namespace tutti::launch {
namespace {

constexpr int64_t kFailuresAtOneStep = 3;  // in a row
constexpr int64_t kFailuresWithoutCheckpoint = 10;
constexpr int64_t kDeathsAtStart = 2;  // of the same rank in a row: it is gone for good

// Of what format_utc() writes; 0 for anything else.
double parse_utc(const std::string& text) {
  std::tm time{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  return end != nullptr && *end == '\0' ? static_cast<double>(::timegm(&time)) : 0;
}

class Supervisor {
 public:
  Supervisor(const TrainArguments& arguments, TrainPlan plan)
      : files_(object::file_system()),
        plan_(std::move(plan)),
        folder_(files_, plan_.run_folder, plan_.recipe.mlperf.enabled()),
        placement_(arguments),
        ranks_(arguments.processes),
        least_(arguments.least_processes > 0 ? arguments.least_processes : arguments.processes),
        stopped_seconds_(arguments.watchdog_seconds > 0 ? arguments.watchdog_seconds
                                                        : train::kStoppedLimitSeconds),
        words_(words_of(arguments)) {}

  int run() {
    newest_ = newest_checkpoint();
    if (placement_.placed(ranks_) < ranks_) {
      continue_with(placement_.placed(ranks_),
                    fmt::format("{} nodes can be used", placement_.nodes().size()));
    }
    for (uint64_t generation = 1;; ++generation) {
      comm::RankProcesses::Variables variables;
      if (!note_.empty()) variables.emplace_back(kNoteVariable, note_);
      std::vector<std::string> nodes;
      began_wall_ = wall_seconds();
      began_ = monotonic_seconds();
      GenerationEnd end = Generation(placement_.start(words_, ranks_, generation, variables, nodes),
                                     ranks_, generation, stopped_seconds_)
                              .run();
      if (end.is_well || end.steps > 0) folder_.keep();  // even if its events could not be written
      if (end.is_well) return end.code;
      if (placement_.over_nodes()) {
        end.nodes = nodes;
        end.dead_nodes = placement_.drop_dead();
        end.steps = step_since(files_, plan_.run_folder, began_wall_);
      }
      if (stop_signal() != 0) {
        // The last checkpoint holds; whether this one does its own rank has said.
        fail(ErrorKind::peer, "stopping failed: {}", culprit_text(end, find_culprit(end)));
      }
      const comm::RankExit culprit = find_culprit(end);
      const std::string why = culprit_text(end, culprit);
      if (culprit.signal == 0 && !end.killed[static_cast<size_t>(culprit.rank)] &&
          (culprit.code == exit_usage || culprit.code == exit_do_not_restart)) {
        print_message(fmt::format("tutti: not started again: {}\n", why));
        // Of a start that was refused nothing is left, no report either.
        if (folder_.has_run()) {
          report(end, culprit, generation, why, "not started again: it would fail the same way", 0);
        }
        return culprit.code;
      }
      const int64_t before = ranks_;
      try {
        decide(end, culprit, why);
      } catch (const Error& error) {
        report(end, culprit, generation, why, error.what(), 0);
        throw;
      }
      report(end, culprit, generation, why, action_, before);
    }
  }

 private:
  std::vector<std::string> words_of(const TrainArguments& arguments) const {
    std::vector<std::string> words = {"train", arguments.target};
    words.insert(words.end(), arguments.overrides.begin(), arguments.overrides.end());
    for (const std::string& file : arguments.with) words.insert(words.end(), {"--with", file});
    words.insert(words.end(), {"--run", plan_.run_folder});
    const auto number = [&](const char* name, double value) {
      words.insert(words.end(), {name, fmt::format("{}", value)});
    };
    number("--check-replicas", static_cast<double>(arguments.check_replicas_every));
    if (arguments.copy_every > 0) {
      number("--peer-copies", static_cast<double>(arguments.copy_every));
    }
    if (arguments.watchdog_seconds > 0) number("--watchdog", arguments.watchdog_seconds);
    if (arguments.trace_steps > 0) number("--trace", static_cast<double>(arguments.trace_steps));
    if (arguments.stop_after_step > 0) {
      number("--stop-after", static_cast<double>(arguments.stop_after_step));
    }
    if (arguments.force_resume) words.emplace_back("--force-resume");
    if (arguments.verbose) words.emplace_back("--verbose");
    if (arguments.json) words.emplace_back("--json");
    return words;
  }

  std::string checkpoint_folder() const {
    return train::checkpoints_path(train::home_of(plan_.recipe, plan_.run_folder));
  }

  // A store that does not answer now may answer when the ranks have started again: what was last
  // seen there counts.
  int64_t newest_checkpoint() {
    try {
      int64_t newest = -1;
      for (const auto& info : checkpoint::list_checkpoints(files_, checkpoint_folder())) {
        if (!info.valid || info.step < newest) continue;
        newest = info.step;
        created_ = info.created;
      }
      seen_ = newest;
    } catch (const Error& error) {
      if (object_store(files_, checkpoint_folder()) == nullptr) throw;
      const std::string known =
          seen_ < 0 ? "no checkpoint" : fmt::format("the checkpoint of step {}", seen_);
      print_message(fmt::format("tutti: warning: {}; {} was there before\n", error.what(), known));
    }
    return seen_;
  }

  train::KeptCopy newest_copy() const {
    return train::newest_peer_copy(files_, memory_root(), plan_.run_folder);
  }

  // What the failure cost, and what follows. `before`: ranks that there were; 0: it is the end.
  void report(const GenerationEnd& end, const comm::RankExit& culprit, uint64_t generation,
              const std::string& why, const std::string& action, int64_t before) {
    const auto rank = static_cast<size_t>(culprit.rank);
    FaultReport fault;
    fault.generation = generation;
    fault.rank = culprit.rank;
    fault.node = rank < end.nodes.size() ? end.nodes[rank] : describe_machine().host;
    fault.step = end.steps;
    fault.cause = why;
    fault.action = action;
    fault.ranks_before = before == 0 ? ranks_ : before;
    fault.ranks_after = before == 0 ? 0 : ranks_;
    const int64_t saved = std::max<int64_t>({0, newest_checkpoint(), newest_copy().step});
    fault.lost_steps = std::max<int64_t>(0, end.steps - 1 - saved);
    fault.lost_seconds = seconds_since_saved();
    write_fault(files_, plan_.run_folder, fault);
    folder_.keep();
  }

  // Or since this generation of ranks began.
  double seconds_since_saved() const {
    const double since_start = monotonic_seconds() - began_;
    const int64_t newest = seen_;
    const train::KeptCopy copy = newest_copy();
    if (copy.step <= newest && object_store(files_, checkpoint_folder()) != nullptr) {
      return std::clamp(wall_seconds() - parse_utc(created_), 0.0, since_start);
    }
    const std::string path =
        copy.step > newest
            ? copy.path
            : join_path(checkpoint_folder(), fmt::format("step-{:08}/manifest.json", newest));
    struct stat state {};
    if (::stat(path.c_str(), &state) != 0) return since_start;
    const double saved = static_cast<double>(state.st_mtim.tv_sec) +
                         static_cast<double>(state.st_mtim.tv_nsec) * 1e-9;
    return std::clamp(wall_seconds() - saved, 0.0, since_start);
  }

  // Whether and how to continue; throws when not.
  void decide(const GenerationEnd& end, const comm::RankExit& culprit, const std::string& why) {
    if (plan_.recipe.mlperf.enabled()) {
      fail(ErrorKind::peer, "{}; an MLPerf run is not started again", why);
    }
    const int64_t copy = newest_copy().step;
    const int64_t newest = std::max(newest_checkpoint(), copy);
    const bool progress = newest > newest_;
    newest_ = newest;
    without_checkpoint_ = progress ? 1 : without_checkpoint_ + 1;
    at_one_step_ = !progress && end.steps == failed_step_ ? at_one_step_ + 1 : 1;
    failed_step_ = end.steps;
    const bool at_start = end.steps == 0;
    deaths_at_start_ = !at_start ? 0 : culprit.rank == died_at_start_ ? deaths_at_start_ + 1 : 1;
    died_at_start_ = culprit.rank;

    const bool is_gone = culprit.code == comm::kExitRankGone ||
                         deaths_at_start_ >= kDeathsAtStart || !end.dead_nodes.empty();
    if (is_gone && placement_.over_nodes()) {
      reassign_ranks(end, culprit, why);
    } else if (is_gone && least_ < ranks_) {
      go_on_without(culprit, why);
    } else if (culprit.code == comm::kExitRankGone) {
      fail(ErrorKind::peer, "{}; to continue with fewer ranks, allow it: --min-nproc", why);
    } else if (at_one_step_ >= kFailuresAtOneStep) {
      fail(ErrorKind::peer, "given up after {} failures in a row {}; the last: {}", at_one_step_,
           at_start ? std::string("before the first step") : fmt::format("in step {}", end.steps),
           why);
    } else if (without_checkpoint_ >= kFailuresWithoutCheckpoint) {
      fail(ErrorKind::peer, "given up after {} failures without a newer checkpoint; the last: {}",
           without_checkpoint_, why);
    }
    action_ =
        fmt::format("{} ranks start again {}{}", ranks_,
                    newest < 0 ? std::string("from the beginning")
                               : fmt::format("from the {} after step {}",
                                             newest == copy ? "peer copies" : "checkpoint", newest),
                    placement_note_);
    placement_note_.clear();
    note_ = fmt::format("{}; {}", why, action_);
    print_message(fmt::format("tutti: {}\n", note_));
  }

  void go_on_without(const comm::RankExit& culprit, const std::string& why) {
    continue_with(ranks_ - 1, why);
    print_message(fmt::format("tutti: rank {} is lost for good: {} ranks instead of {}\n",
                              culprit.rank, ranks_, ranks_before_));
  }

  // A spare replaces a node that is gone, or that a rank cannot live on; without one, fewer ranks.
  void reassign_ranks(const GenerationEnd& end, const comm::RankExit& culprit,
                      const std::string& why) {
    if (end.dead_nodes.empty()) placement_.drop(end.nodes[static_cast<size_t>(culprit.rank)]);
    if (placement_.placed(ranks_) == ranks_) {
      placement_note_ = fmt::format(" on {}", join(used_nodes(), ", "));
      at_one_step_ = deaths_at_start_ = 0;
      return;
    }
    continue_with(placement_.placed(ranks_), why);
    placement_note_ = fmt::format(" instead of {}, on {}", ranks_before_, join(used_nodes(), ", "));
  }

  std::vector<std::string> used_nodes() const {
    const std::vector<std::string>& nodes = placement_.nodes();
    return {nodes.begin(), nodes.begin() + placement_.nodes_for(ranks_)};
  }

  // The most ranks up to `most` that a layout fits and that can be placed; throws when they would
  // be fewer than allowed.
  void continue_with(int64_t most, const std::string& why) {
    int64_t fewer = most;
    while (fewer >= least_ &&
           (!spec::fits(plan_.recipe, fewer) || placement_.placed(fewer) != fewer)) {
      --fewer;
    }
    if (fewer < least_) {
      fail(ErrorKind::peer, "{}; no layout of {} to {} ranks (--min-nproc) fits the run", why,
           least_, most);
    }
    ranks_before_ = ranks_;
    ranks_ = fewer;
    at_one_step_ = deaths_at_start_ = 0;
  }

  FileSystem& files_;
  const TrainPlan plan_;
  NewRunFolder folder_;
  RankPlacement placement_;
  int64_t ranks_;
  int64_t ranks_before_ = 0;
  const int64_t least_;
  const double stopped_seconds_;  // that a rank may be
  const std::vector<std::string> words_;
  std::string note_;
  std::string action_;
  std::string placement_note_;
  double began_wall_ = 0;  // of this generation of ranks
  double began_ = 0;       // the same on the clock that never jumps
  int64_t newest_ = -1;    // step of the newest checkpoint when the ranks were started; -1: none
  int64_t seen_ = -1;      // the same, when it was last asked for
  std::string created_;    // when that was saved
  int64_t without_checkpoint_ = 0;
  int64_t at_one_step_ = 0;
  int64_t failed_step_ = -1;
  int64_t deaths_at_start_ = 0;
  int64_t died_at_start_ = -1;
};

}  // namespace

void report_to_launcher(comm::Store& store, const comm::LaunchEnvironment& environment,
                        const Error& error) noexcept {
  try {
    store.set(failure_key(environment.generation, environment.rank),
              std::string(error_kind_name(error.kind())) + "\n" + error.what());
  } catch (const Error&) {
    return;  // the launcher is gone, and this process with it
  }
}

std::string memory_root() {
  return comm::read_process_variable("TUTTI_MEMORY_ROOT").value_or(train::kMemoryRoot);
}

int train_with_ranks(const TrainArguments& arguments) {
  watch_signals();
  watch_notice(arguments.notice);
  if (arguments.parent > 0 && !end_with_parent(arguments.parent)) {
    fail(ErrorKind::io, "--end-with-parent: process {} does not exist", arguments.parent);
  }
  TrainPlan plan =
      make_train_plan(object::file_system(), arguments, arguments.processes, "--nproc");
  make_corpora(object::file_system(), plan.recipe);
  // Of other nodes the ranks there say it.
  if (arguments.ranks_per_node == 0) {
    require_corpora(object::file_system(), plan.recipe);
    checkpoint::save_key(object::file_system(), plan.recipe.checkpoint.key_file);
  }
  record_checksums(object::file_system(), plan.recipe.data.train);
  record_checksums(object::file_system(), plan.recipe.data.validation);
  return Supervisor(arguments, std::move(plan)).run();
}

}  // namespace tutti::launch
