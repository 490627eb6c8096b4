#include "tutti/mlperf/value_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

// Sources of the formulas: mlcommons/training_policies, training_rules.adoc, Llama 3.1 405B: the
// learning rate grows with the batch from 8e-5 at 1152, warm-up and decay shrink with it.
constexpr double kReferenceBatch = 1152;
constexpr double kReferenceRate = 8e-5;
constexpr double kReferenceWarmup = 8000;
constexpr double kReferenceSteps = 1'200'000;

std::string number_wanted(bool right, double wanted) {
  return right ? std::string() : fmt::format("{}", wanted);
}

std::string one_of(const std::vector<std::string>& accepted) {
  return accepted.size() == 1 ? accepted[0] : "one of " + join(accepted, ", ");
}

std::string test_formula(const KeyRule& rule, double number, const RuleContext& context) {
  const bool needs_batch = rule.test != Test::decay_8b;
  if (needs_batch ? !context.global_batch : !context.warmup_steps) return {};
  if (rule.test == Test::decay_8b) {
    const double steps = kReferenceSteps - *context.warmup_steps;
    return number_wanted(number == steps, steps);
  }
  const double batch = *context.global_batch;
  if (rule.test == Test::rate_405b) {
    // Exactly so, and in this order: the checker compares doubles.
    const bool right = number * kReferenceBatch == batch * kReferenceRate;
    return number_wanted(right, kReferenceRate * batch / kReferenceBatch);
  }
  const double steps = std::ceil(kReferenceSteps * kReferenceBatch / batch) -
                       std::ceil(kReferenceWarmup * kReferenceBatch / batch);
  return number_wanted(number == steps, steps);
}

std::string test_number(const KeyRule& rule, double number, const RuleContext& context) {
  if (rule.test == Test::positive) return number > 0 ? "" : "a number above 0";
  if (rule.test != Test::number) return test_formula(rule, number, context);
  if (std::find(rule.numbers.begin(), rule.numbers.end(), number) != rule.numbers.end()) return {};
  std::vector<std::string> accepted;
  for (const double candidate : rule.numbers) accepted.push_back(fmt::format("{}", candidate));
  return one_of(accepted);
}

}  // namespace

std::optional<double> as_number(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  return value.get<double>();
}

std::string wanted_instead(const KeyRule& rule, const Json& value, const RuleContext& context) {
  switch (rule.test) {
    case Test::any:
    case Test::target: return {};
    case Test::present:
      return value.is_string() && value.get_ref<const std::string&>().empty() ? "any text" : "";
    case Test::word: {
      const bool right =
          value.is_string() && std::find(rule.words.begin(), rule.words.end(),
                                         value.get<std::string>()) != rule.words.end();
      return right ? std::string() : one_of(rule.words);
    }
    default: break;
  }
  const auto number = as_number(value);
  return number ? test_number(rule, *number, context) : "a number";
}

bool reaches_target(const KeyRule& rule, const Json& value) {
  const auto number = as_number(value);
  return number && *number > rule.above && *number <= rule.at_most;
}

}  // namespace tutti::mlperf
