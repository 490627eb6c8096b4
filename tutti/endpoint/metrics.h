// Metrics of an endpoint in Prometheus' text format 0.0.4. What vLLM measures, too, has vLLM's
// names (vllm:num_requests_running, ...) and label model_name, so that dashboards and autoscalers
// made for it read them; all else is tutti_endpoint_... docs/endpoint.md lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tutti/endpoint/engine.h"

namespace tutti::endpoint {

struct ModelMetrics {
  std::string name;
  int64_t resident_bytes = 0;  // of its weights
  int64_t context = 0;         // longest text
  EngineStats stats;
};

struct HttpMetrics {
  size_t connections = 0;
  size_t unanswered = 0;
  std::map<std::pair<std::string, int>, int64_t> answers;  // by route and status
};

std::string metrics_text(const std::vector<ModelMetrics>& models, const HttpMetrics& http);

}  // namespace tutti::endpoint
