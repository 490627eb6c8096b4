// The folder of a job on the machine where it runs: what the controller and the supervisors of its
// launches exchange. Files are written completely and renamed, so that each exists or not.
//
//   newest      generation of the newest launch that was ordered; older ones do not begin
//   order-G     what launch G runs (JSON)
//   begun-G     that it began: process, boot, time (JSON)
//   ended-G     how it ended (JSON)
//   alive-G     how long it has run, every two seconds
//   outside-G   the number it has in a system outside, such as Slurm
//   stop-G      launch G should save and stop
//   ready-G     where launch G, a deployment, listens (JSON), written by it
//   health-G    what the checks of launch G, a deployment, have found (JSON)
//   kill-G      launch G should end at once, or not begin
//   lock        held by the supervisor of a launch and every process below it: at most one launch
//   output.log  what they print, one launch after the other
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/control/launches/launcher.h"

namespace tutti::control {

struct Begun {
  int process = 0;
  std::string boot;       // identifies the boot of the machine
  int64_t steady_ms = 0;  // since that boot
};

struct Ended {
  std::optional<int> exit_code;  // absent: it could not be started
  int64_t elapsed_ms = 0;
  std::optional<int64_t> measured_micro_kwh;
  std::string detail;
};

// Of a deployment, as the last check that found something else saw it.
struct Health {
  bool operator==(const Health&) const = default;
  std::string state;  // "starting", "healthy", "unhealthy"
  std::string url;    // empty: not yet
  std::string detail;
};

class LaunchFolder {
 public:
  LaunchFolder(FileSystem& files, std::string folder) : files_(files), folder_(std::move(folder)) {}

  const std::string& path() const { return folder_; }
  std::string lock_path() const { return join_path(folder_, "lock"); }
  std::string output_path() const { return join_path(folder_, "output.log"); }

  int64_t newest() const;
  void set_newest(int64_t generation);

  void write_order(const LaunchOrder& order);
  LaunchOrder read_order(int64_t generation) const;  // but for what of the claims is whose
  void write_begun(int64_t generation, const Begun& begun);
  std::optional<Begun> read_begun(int64_t generation) const;
  void write_ended(int64_t generation, const Ended& ended);
  std::optional<Ended> read_ended(int64_t generation) const;
  bool has_ended(int64_t generation) const { return has("ended", generation); }
  // Whether the launch has ended; how it did is then in `status`.
  bool take_ended(int64_t generation, LaunchStatus& status) const;

  void write_alive(int64_t generation, int64_t elapsed_ms);
  int64_t read_alive(int64_t generation) const;  // 0: not yet
  void write_outside(int64_t generation, const std::string& number);
  std::string read_outside(int64_t generation) const;  // empty: none

  std::string ready_path(int64_t generation) const { return file("ready", generation); }
  void write_health(int64_t generation, const Health& health);
  std::optional<Health> read_health(int64_t generation) const;

  void ask_to_stop(int64_t generation) { touch("stop", generation); }
  void ask_to_die(int64_t generation) { touch("kill", generation); }
  bool is_asked_to_stop(int64_t generation) const { return has("stop", generation); }
  bool is_asked_to_die(int64_t generation) const { return has("kill", generation); }

 private:
  std::string file(const char* what, int64_t generation) const;
  bool has(const char* what, int64_t generation) const {
    return files_.exists(file(what, generation));
  }
  void touch(const char* what, int64_t generation);

  FileSystem& files_;
  std::string folder_;
};

// Of a job in the folder of all jobs.
std::string job_folder(const std::string& jobs_folder, int64_t job, int64_t stamp);

int64_t steady_milliseconds();

}  // namespace tutti::control
