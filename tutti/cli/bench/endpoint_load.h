// The load that `tutti bench endpoint` puts on an endpoint: when which request comes, and how long
// its prompt and its answer are. A function of the seed alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::cli {

// Lengths in tokens: always the same, uniform over a range, or log-normal (as those of real
// conversations are, roughly) with a mean and sigma 1 of the logarithm, cut off at eight times it.
struct TokenLengths {
  enum class Kind : uint8_t { fixed, uniform, log_normal } kind = Kind::fixed;
  int64_t least = 1, most = 1;  // fixed: both the same
  double mean = 1;              // log_normal
};
// "128", "64-256" or "~128". Throws usage naming `option`.
TokenLengths parse_token_lengths(const std::string& text, const std::string& option);

struct LoadOptions {
  double rate = 1;  // requests per second, on average: arrivals are a Poisson process
  int64_t requests = 100;
  TokenLengths prompt, answer;
  uint64_t seed = 0;
};

struct PlannedRequest {
  double at_seconds = 0;  // from the start, not falling
  int64_t prompt_tokens = 1;
  int64_t answer_tokens = 1;
};

std::vector<PlannedRequest> plan_load(const LoadOptions& options);

}  // namespace tutti::cli
