#include "tutti/cli/bench/endpoint_load.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"

namespace tutti::cli {
namespace {

constexpr int64_t kMostTokens = 10'000'000;
constexpr double kMostOverMean = 8;

int64_t length_number(std::string_view text, const std::string& whole, const std::string& option) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 1 ||
      number > kMostTokens) {
    fail(ErrorKind::usage,
         "{} '{}': give a number of tokens such as 128, a range such as 64-256, or ~128 for "
         "log-normal lengths of that mean",
         option, whole);
  }
  return number;
}

// In (0, 1).
double open_uniform(uint64_t key, uint64_t index) {
  return (static_cast<double>(random_u64(key, index) >> 11) + 0.5) * 0x1p-53;
}

int64_t draw_length(const TokenLengths& lengths, uint64_t key, uint64_t index) {
  switch (lengths.kind) {
    case TokenLengths::Kind::fixed: return lengths.least;
    case TokenLengths::Kind::uniform: {
      const auto span = static_cast<double>(lengths.most - lengths.least + 1);
      return lengths.least + static_cast<int64_t>(open_uniform(key, 2 * index) * span);
    }
    case TokenLengths::Kind::log_normal: {
      // Box and Muller; exp(mu + z) has the mean exp(mu + 1/2).
      const double radius = std::sqrt(-2 * std::log(open_uniform(key, 2 * index)));
      const double z = radius * std::cos(2 * std::numbers::pi * open_uniform(key, 2 * index + 1));
      const double length = lengths.mean * std::exp(z - 0.5);
      return std::llround(std::clamp(length, 1.0, kMostOverMean * lengths.mean));
    }
  }
  return lengths.least;
}

}  // namespace

TokenLengths parse_token_lengths(const std::string& text, const std::string& option) {
  TokenLengths lengths;
  const std::string_view view = text;
  if (!view.empty() && view.front() == '~') {
    lengths.kind = TokenLengths::Kind::log_normal;
    lengths.mean = static_cast<double>(length_number(view.substr(1), text, option));
    return lengths;
  }
  const size_t dash = view.find('-');
  lengths.least = length_number(view.substr(0, dash), text, option);
  lengths.most = lengths.least;
  if (dash != std::string_view::npos) {
    lengths.kind = TokenLengths::Kind::uniform;
    lengths.most = length_number(view.substr(dash + 1), text, option);
    if (lengths.most < lengths.least) {
      fail(ErrorKind::usage, "{} '{}': the range is empty", option, text);
    }
  }
  return lengths;
}

std::vector<PlannedRequest> plan_load(const LoadOptions& options) {
  const uint64_t arrivals = stream_key(options.seed, "arrivals");
  const uint64_t prompts = stream_key(options.seed, "prompt lengths");
  const uint64_t answers = stream_key(options.seed, "answer lengths");
  std::vector<PlannedRequest> plan;
  double at = 0;
  for (int64_t i = 0; i < options.requests; ++i) {
    const auto index = static_cast<uint64_t>(i);
    plan.push_back({at, draw_length(options.prompt, prompts, index),
                    draw_length(options.answer, answers, index)});
    at -= std::log(open_uniform(arrivals, index)) / options.rate;
  }
  return plan;
}

}  // namespace tutti::cli
