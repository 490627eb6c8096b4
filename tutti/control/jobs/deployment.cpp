#include "tutti/control/jobs/deployment.h"

#include "tutti/base/client_address.h"

namespace tutti::control {

bool listens_on_loopback(const Deployment& deployment) { return is_loopback(deployment.address); }

Json to_json(const HealthRule& rule) {
  return {{"start_ms", rule.start_ms}, {"every_ms", rule.every_ms}, {"failures", rule.failures}};
}

HealthRule health_rule_from_json(const Json& json, const std::string& origin) {
  return {json_get<int64_t>(json, "start_ms", origin), json_get<int64_t>(json, "every_ms", origin),
          json_get<int64_t>(json, "failures", origin)};
}

Json to_json(const Deployment& deployment) {
  return {{"name", deployment.name},
          {"checkpoint", deployment.checkpoint},
          {"manifest_sha256", deployment.manifest_sha256},
          {"step", deployment.step},
          {"address", deployment.address},
          {"port", deployment.port},
          {"health", to_json(deployment.health)}};
}

Deployment deployment_from_json(const Json& json, const std::string& origin) {
  const auto text = [&](const char* key) { return json_get<std::string>(json, key, origin); };
  const auto number = [&](const char* key) { return json_get<int64_t>(json, key, origin); };
  Deployment deployment;
  deployment.name = text("name");
  deployment.checkpoint = text("checkpoint");
  deployment.manifest_sha256 = text("manifest_sha256");
  deployment.step = number("step");
  deployment.address = text("address");
  deployment.port = number("port");
  deployment.health = health_rule_from_json(json_get<Json>(json, "health", origin), origin);
  return deployment;
}

}  // namespace tutti::control
