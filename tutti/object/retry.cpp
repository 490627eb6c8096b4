#include "tutti/object/retry.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace tutti::object {

bool is_passing(int status, const std::string& code) {
  switch (status) {
    case 429:
    case 500:
    case 502:
    case 503:
    case 504: return true;
    case 400: return code == "RequestTimeout";
    case 409: return code == "ConditionalRequestConflict" || code == "OperationAborted";
    default: return false;
  }
}

double backoff_seconds(const RetryOptions& options, int attempt) {
  const double bound =
      std::min(options.most_seconds, options.first_seconds * std::exp2(std::min(attempt - 1, 30)));
  if (options.uniform) return bound * options.uniform();
  // Not of a recipe's seed: ranks are to differ.
  thread_local std::mt19937_64 chance{std::random_device{}()};
  return bound * std::uniform_real_distribution<double>()(chance);
}

}  // namespace tutti::object
