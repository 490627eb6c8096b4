#include "tutti/control/jobs/approval.h"

#include <limits>

#include "tutti/base/json.h"
#include "tutti/control/audit/audit.h"

namespace tutti::control {
namespace {

constexpr const char* kWhat = "approve";

std::string subject(const std::string& manifest_sha256) { return "checkpoint " + manifest_sha256; }

}  // namespace

void approve(const Caller& caller, const Approval& approval) {
  Transaction transaction(caller.database);
  const std::string on = subject(approval.manifest_sha256);
  require(caller, transaction, Action::steer_any, approval.project, kWhat, on);
  note(caller, kWhat, on, true,
       {{"project", approval.project},
        {"path", approval.path},
        {"step", approval.step},
        {"remark", approval.remark}});
  transaction.commit();
}

std::vector<Approval> approvals_of(const Caller& caller, const std::string& manifest_sha256) {
  std::vector<Approval> found;
  const std::string on = subject(manifest_sha256);
  for (const Json& line :
       audit_lines(caller.database, std::numeric_limits<int64_t>::max(), manifest_sha256)) {
    if (line.value("what", "") != kWhat || line.value("on", "") != on ||
        !line.value("allowed", false)) {
      continue;
    }
    const Json detail = line.value("detail", Json::object());
    Approval approval;
    approval.project = detail.value("project", "");
    if (!may(caller, Action::view, approval.project)) continue;
    approval.manifest_sha256 = manifest_sha256;
    approval.path = detail.value("path", "");
    approval.step = detail.value("step", int64_t{0});
    approval.remark = detail.value("remark", "");
    approval.who = line.value("who", "");
    approval.time_ms = line.value("time_ms", int64_t{0});
    found.push_back(approval);
  }
  return found;
}

}  // namespace tutti::control
