// Approval of a checkpoint: a line in the audit log that names it by the SHA-256 of its manifest,
// which holds the checksums of all the rest. So an approval identifies these bytes in any location,
// and is as hard to forge as the audit log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/control/people/permission.h"

namespace tutti::control {

struct Approval {
  std::string project;
  std::string manifest_sha256;
  std::string path;  // of the checkpoint when it was approved
  int64_t step = 0;
  std::string remark;
  std::string who;      // set by approvals_of
  int64_t time_ms = 0;  // likewise
};

// Needs the role of an operator in the project; a refusal leaves its line, too.
void approve(const Caller& caller, const Approval& approval);

// Those that the caller may see, oldest first.
std::vector<Approval> approvals_of(const Caller& caller, const std::string& manifest_sha256);

}  // namespace tutti::control
