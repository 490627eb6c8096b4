// A checkpoint that a command is about, and the run that it is of.
#pragma once

#include <string>

#include "tutti/checkpoint/store/manifest.h"
#include "tutti/control/people/permission.h"

namespace tutti::cli {

struct CheckpointSubject {
  std::string path;  // absolute
  std::string home;  // where its recipe is: the run folder, or the run's home in an object store
  std::string run;   // folder of its events, which the control plane knows it by
  std::string manifest_sha256;
  checkpoint::Manifest manifest;
};

// `given` is a checkpoint, or a run, whose newest is meant. Throws not_found where there is none.
CheckpointSubject find_subject(const std::string& given);

// The project that it belongs to: that of its newest job that the caller may see, else what its
// recipe names, else the default.
std::string project_of(const control::Caller& caller, const CheckpointSubject& subject);

}  // namespace tutti::cli
