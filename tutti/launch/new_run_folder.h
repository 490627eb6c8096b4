// The folder of a run that is being started.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "tutti/base/file.h"
#include "tutti/telemetry/sink.h"

namespace tutti::launch {

// Removes the run folder with this object, where it was not there before and the run has not
// started: a start that fails (a corpus that is missing, no memory) leaves nothing behind.
// Telemetry that writes into the folder has to be gone by then.
class NewRunFolder {
 public:
  // Before anything is written to `path`. `keep`: it stays whatever happens.
  NewRunFolder(FileSystem& files, const std::string& path, bool keep);
  ~NewRunFolder();
  NewRunFolder(const NewRunFolder&) = delete;
  NewRunFolder& operator=(const NewRunFolder&) = delete;

  // Whether there is a run in it: it was there before, or its events record a start, in whichever
  // process, or it holds a checkpoint.
  bool has_run() const;
  // It stays whatever happens from here on.
  void keep() { stays_ = true; }

  // To be added to the run's telemetry: learns from its events that the run has started. Must not
  // outlive this object.
  std::unique_ptr<telemetry::Sink> watch();

 private:
  FileSystem& files_;
  const std::string path_;
  const bool parent_is_new_;
  std::atomic<bool> stays_;
};

}  // namespace tutti::launch
