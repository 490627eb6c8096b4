// Launches as jobs of Slurm (22.05 and later): sbatch a supervisor (control/launches/supervisor.h),
// which says through the job's folder how it goes; Slurm says where, and what else became of it.
// The folder of all jobs is on a file system that every node sees, with locks that hold between
// them.
//
// One Slurm job per launch, never requeued by Slurm: which job continues, when and with what is
// decided in one file (control/schedule/policy.h), which also books what the attempt cost. Its name
// carries the launch, so a launcher that was killed right after sbatch finds it again; of two by
// one name only one gets the job's lock and runs. What matters of 22.05:
//
//   - SIGUSR2 comes before Slurm's own limit (--signal=B:), to the supervisor alone; SIGTERM when
//     the job is preempted. GraceTime is kept only where PreemptMode is CANCEL, which for a job
//     that is not requeued it always is.
//   - --no-kill: the death of a node ends the ranks on it and not the job (the first node's does).
//   - --export=NIL: nothing of this process's environment reaches Slurm's state or accounting.
//   - slurmctld down: running jobs continue, pending ones wait; nothing is inferred from silence.
//   - A slurmctld that is killed may forget that it has just launched a job, and launches it again:
//     elsewhere, where the job's lock refuses it, or on the same node, where slurmd refuses it,
//     cancels the job and has the node drained for "Duplicate jobid". No user asked for that: the
//     launch is lost, the job is not.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/control/launches/launch_folder.h"
#include "tutti/control/launches/launcher.h"

namespace tutti::control {

struct SlurmSettings {
  std::string partition;  // empty: Slurm's default
  std::string account;    // of its accounting; empty: none
};

// What Slurm says about a launch.
struct SlurmJob {
  int64_t id = 0;
  std::string state;   // "PENDING"
  std::string reason;  // "Resources"
  std::string nodes;   // "n[1-4]", without those that died
  std::string head;    // "n1": where its batch script runs, or ran
};

// Lines of `squeue --format=%A|%j|%T|%r|%N|%B`, by name; of several with one name that which runs
// or waits, else the newest. Lines that are not such are left out.
std::map<std::string, SlurmJob> parse_squeue(const std::string& text);

// What the state of a Slurm job says of its launch, beside the phase: who stopped it, and whether
// it is suspended or has lost its memory.
void read_slurm_state(const std::string& state, LaunchStatus& status);

// Whether a node was drained because slurmctld launched a job there that it had there already.
bool is_duplicate_launch(const std::string& node_reason);

// Lines of `sinfo -N --format=%N|%c|%T|%E|%G`: nodes, each once, up where they take jobs.
std::vector<Node> parse_sinfo(const std::string& text);

// The nodes of the partition; absent while slurmctld does not answer. Throws io where Slurm
// is not installed.
std::optional<std::vector<Node>> slurm_nodes(const SlurmSettings& settings);

// "tutti-JOB-STAMP-GENERATION"
std::string slurm_name(const LaunchKey& key);
std::optional<LaunchKey> launch_of(const std::string& slurm_name);  // absent: not one of ours

// What sbatch is called with, but for the script, which comes on its standard input.
std::vector<std::string> sbatch_words(const LaunchOrder& order, const SlurmSettings& settings,
                                      const std::string& output);

class SlurmLauncher final : public Launcher {
 public:
  // `supervisor`: the program and its words before the job's folder and the generation; its path
  // is the same on all nodes.
  SlurmLauncher(FileSystem& files, std::string folder, std::vector<std::string> supervisor,
                SlurmSettings settings)
      : files_(files),
        folder_(std::move(folder)),
        supervisor_(std::move(supervisor)),
        settings_(std::move(settings)) {}

  void start(const LaunchOrder& order) override;
  LaunchStatus status(const LaunchKey& key) override;
  void stop(const LaunchKey& key) override;
  void kill(const LaunchKey& key) override;
  std::vector<Fault> faults(const LaunchKey& key, const std::string& run_folder) override;

 private:
  LaunchFolder folder_of(const LaunchKey& key) const;
  // Asked again when the last answer is older than `age_seconds`. False: no answer.
  bool ask(double age_seconds);
  const SlurmJob* find(const LaunchKey& key) const;
  // Whether the node of the supervisor died under it: with --no-kill Slurm keeps the others.
  bool lost_head(const SlurmJob& job);
  // Of a cancelled job: what is to be said where Slurm cancelled it for having launched it twice,
  // else nothing.
  std::string launched_twice(const SlurmJob& job);
  // Whether its end has been known for so long that whatever follows it has followed.
  bool has_settled(const SlurmJob& job);
  void cancel(const LaunchKey& key);
  // A slurmctld that was restarted may believe for minutes that jobs run which have ended, and
  // keeps their nodes: it is asked to release them.
  void end_ghosts();
  std::vector<std::string> names_of(const std::string& hosts);

  FileSystem& files_;
  std::string folder_;
  std::vector<std::string> supervisor_;
  SlurmSettings settings_;
  std::map<std::string, SlurmJob> jobs_;
  double asked_at_ = -1e9;
  bool answered_ = false;
  std::map<int64_t, double> ended_at_;  // Slurm jobs that have: seen since when
  std::map<int64_t, double> ghosts_;    // those that run, and whose launches have ended: since when
  std::map<std::string, std::vector<std::string>> host_lists_;  // as Slurm expanded them
};

}  // namespace tutti::control
