// A deployment: a job that serves one checkpoint of a run (`tutti endpoint`) until it is stopped.
// It never completes by itself: whatever ends it, it is started again unless it was stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::control {

// When the supervisor of a deployment takes it for broken and kills it, so that it is started
// again.
struct HealthRule {
  bool operator==(const HealthRule&) const = default;
  int64_t start_ms = 600'000;  // from its start to the first good answer of /health
  int64_t every_ms = 10'000;   // from one check to the next; an answer may take as long
  int64_t failures = 3;        // checks in a row without a good answer
};

struct Deployment {
  bool operator==(const Deployment&) const = default;
  std::string name;             // clients ask for the model by it; unique in a project
  std::string checkpoint;       // folder of the checkpoint
  std::string manifest_sha256;  // which names its bytes, as approvals do (approval.h)
  int64_t step = 0;
  std::string address;
  int64_t port = 0;
  HealthRule health;
};

bool listens_on_loopback(const Deployment& deployment);

Json to_json(const HealthRule& rule);
HealthRule health_rule_from_json(const Json& json, const std::string& origin);
Json to_json(const Deployment& deployment);
Deployment deployment_from_json(const Json& json, const std::string& origin);

}  // namespace tutti::control
