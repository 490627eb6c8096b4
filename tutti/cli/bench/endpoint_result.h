// What `tutti bench endpoint` measured, and its summary. Times of a request begin when it was to be
// sent by the plan: a client or a server that lags behind does not make them shorter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::cli {

struct MeasuredRequest {
  double planned_seconds = 0;  // from the start
  double first_seconds = 0;    // of its first piece of text
  double last_seconds = 0;     // of its end
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t answer_tokens = 0;
  int status = 0;     // of HTTP; 0: no answer
  std::string error;  // empty: it succeeded

  double first_token_seconds() const { return first_seconds - planned_seconds; }  // TTFT
  double latency_seconds() const { return last_seconds - planned_seconds; }
  double per_token_seconds() const;  // TPOT: between two tokens, after the first
};

// What counts as good: requests within both.
struct LatencyTargets {
  double first_token_seconds = 1;
  double per_token_seconds = 0.1;
};

struct EndpointResult {
  double rate = 0;
  double seconds = 0;  // from the first request to the last answer
  std::vector<MeasuredRequest> requests;
  LatencyTargets targets;
};

Json endpoint_result_json(const EndpointResult& result);
std::string endpoint_result_text(const EndpointResult& result);
// A page with the distributions of the times.
std::string endpoint_result_page(const EndpointResult& result, const std::string& url);

}  // namespace tutti::cli
