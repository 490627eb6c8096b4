// Whether the value of a record complies with its rule.
#pragma once

#include <cstdint>
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

// An integer, also one written as text or as 17.0; a fraction is cut off.
std::optional<int64_t> as_integer(const Json& value);

// The key whose number the rule tests against and `context` lacks; "" when it lacks none.
std::string lacks_number(const KeyRule& rule, const RuleContext& context);

// What would be accepted, such as "2048" or "one of 2e-05, 3e-05"; "" when `value` is. A rule that
// lacks a number in `context` accepts anything: the caller reports that (lacks_number).
std::string wanted_instead(const KeyRule& rule, const Json& value, const RuleContext& context);

// The samples_count that the first record must have; nothing when it is free or `context` lacks the
// batch.
std::optional<double> first_samples_count(const KeyRule& rule, const RuleContext& context);

// Whether a text is what a script was meant to replace: it says nothing about the submitter or
// system.
bool is_placeholder(const Json& value);

// Whether one evaluation is enough for a rule of Test::target.
bool reaches_target(const KeyRule& rule, const Json& value);

}  // namespace tutti::mlperf
