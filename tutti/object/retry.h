// When a request is tried again: after failures of the network and answers that ask for it, with
// waits that double, each drawn at random between zero and its bound ("full jitter"), so that many
// ranks do not come back at once.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tutti/object/transport.h"

namespace tutti::object {

struct RetryOptions {
  int attempts = 10;           // in all
  double first_seconds = 0.1;  // bound of the first wait
  double most_seconds = 20;    // of any
  // Injected by tests.
  std::function<void(double seconds)> sleep;  // empty: sleep_seconds()
  std::function<double()> uniform;            // in [0, 1); empty: of this process
};

// Whether an answer asks to try again: 429, 500, 502, 503, 504, and the codes that S3 gives to
// requests that came in too slowly or met another.
bool is_passing(int status, const std::string& code);

// The wait after `attempt` failed attempts, 1 for the first.
double backoff_seconds(const RetryOptions& options, int attempt);

}  // namespace tutti::object
