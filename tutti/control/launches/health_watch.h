// Asks a deployment for its health while its supervisor waits for its end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "tutti/base/file.h"
#include "tutti/control/launches/launch_folder.h"

namespace tutti::control {

// From its construction on, on a thread of its own: once launch `generation` has written where it
// listens (LaunchFolder::ready_path, {"url": ...}), asks GET /health by `rule`. What it finds goes
// into the folder (write_health) when it changes; a full disk is passed over.
class HealthWatch {
 public:
  HealthWatch(FileSystem& files, const LaunchFolder& folder, int64_t generation,
              const HealthRule& rule);
  ~HealthWatch();
  HealthWatch(const HealthWatch&) = delete;
  HealthWatch& operator=(const HealthWatch&) = delete;

  // Why the launch is to be killed; empty: it is not. Never empty again once it was not.
  std::string broken() const;
  // The launch was asked to stop and refuses new requests: nothing is asked any more.
  void end();

 private:
  void watch();
  bool goes_on() const;
  bool wait(int64_t milliseconds);                // false: the watch ends
  std::string url() const;                        // empty: not yet
  std::string ask(const std::string& url) const;  // what is wrong; empty: nothing
  void report(const Health& health);
  void give_up(const std::string& url, const std::string& why);

  FileSystem& files_;
  LaunchFolder folder_;
  const int64_t generation_;
  const HealthRule rule_;
  Health reported_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::string broken_;
  std::thread thread_;
};

}  // namespace tutti::control
