// A load of requests played through the scheduler of the engine (scheduler.h), where passes take as
// long as a price says: what users would see of a machine that is not here.
//
// It is what Engine does, pass by pass: rows of at most kFewRows share passes, longer pieces of
// prompts have their own. Nothing else takes time. Prompts have nothing in common.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tutti/endpoint/scheduler.h"
#include "tutti/spec/program/inference_work.h"

namespace tutti::endpoint {

struct PlayedRequest {
  double at_seconds = 0;  // when it comes; not falling
  int64_t prompt_tokens = 1;
  int64_t answer_tokens = 1;

  // What becomes of it.
  bool refused = false;            // too many wait
  double first_token_seconds = 0;  // on the clock of at_seconds
  double last_token_seconds = 0;
};

struct PlayedLoad {
  double seconds = 0;       // until the last answer
  double busy_seconds = 0;  // in passes
  int64_t passes = 0;
  int64_t preemptions = 0;
  int64_t most_running = 0;  // side by side
};

using PassPrice = std::function<double(std::span<const spec::TextRows>)>;

// Fills in `requests`. Throws usage where one is longer than the whole cache.
PlayedLoad play_load(std::vector<PlayedRequest>& requests, const SchedulerOptions& options,
                     int64_t max_waiting, const PassPrice& pass_seconds);

}  // namespace tutti::endpoint
