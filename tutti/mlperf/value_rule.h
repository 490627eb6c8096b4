// Whether the value of a record is what its rule wants.
#pragma once

#include <optional>
#include <string>

#include "tutti/base/json.h"
#include "tutti/mlperf/ruleset.h"

namespace tutti::mlperf {

// Values that later ones are tested against, as far as they were logged already.
struct RuleContext {
  std::optional<double> global_batch;
  std::optional<double> warmup_steps;
};

// A number, not a truth value.
std::optional<double> as_number(const Json& value);

// What would be accepted, such as "2048" or "one of 2e-05, 3e-05"; "" when `value` is. A rule whose
// `needs` is unknown in `context` accepts anything: that is an error of order, reported elsewhere.
std::string wanted_instead(const KeyRule& rule, const Json& value, const RuleContext& context);

// Whether one evaluation is enough for a rule of Test::target.
bool reaches_target(const KeyRule& rule, const Json& value);

}  // namespace tutti::mlperf
