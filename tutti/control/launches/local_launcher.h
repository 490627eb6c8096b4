// Launches on this machine: a supervisor process (supervisor.h) per launch, in a session of its
// own, so that neither the end of the controller nor of a terminal ends a job.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/control/launches/launch_folder.h"
#include "tutti/control/launches/launcher.h"

namespace tutti::control {

class LocalLauncher final : public Launcher {
 public:
  // Jobs have their folders in `folder`. `supervisor` is the program with the words before the
  // job's folder and the generation: {"/proc/self/exe", "tutti", "supervise"}.
  LocalLauncher(FileSystem& files, std::string folder, std::vector<std::string> supervisor)
      : files_(files), folder_(std::move(folder)), supervisor_(std::move(supervisor)) {}

  void start(const LaunchOrder& order) override;
  LaunchStatus status(const LaunchKey& key) override;
  void stop(const LaunchKey& key) override;
  void kill(const LaunchKey& key) override;
  std::vector<Fault> faults(const LaunchKey& key, const std::string& run_folder) override;

 private:
  LaunchFolder folder_of(const LaunchKey& key) const;
  // Whether the supervisor that this process started for the launch still lives.
  bool is_alive(const LaunchKey& key);

  FileSystem& files_;
  std::string folder_;
  std::vector<std::string> supervisor_;
  std::map<std::pair<int64_t, int64_t>, int> started_;  // (job, generation): process
};

}  // namespace tutti::control
