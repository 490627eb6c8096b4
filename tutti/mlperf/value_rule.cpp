#include "tutti/mlperf/value_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
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

// Source: mlcommons/logging, training_6.0.0/closed_deepseekv3_671b.yaml.
constexpr double kDeepseekBatch = 16'384;
constexpr double kDeepseekRate = 2.4e-5;
constexpr double kDeepseekTolerance = 1e-9;
constexpr double kIntegerTolerance = 1e-5;

std::string test_formula(const KeyRule& rule, double number, const RuleContext& context) {
  if (!lacks_number(rule, context).empty()) return {};
  if (rule.test == Test::decay_after_warmup) {
    const double steps = rule.numbers[0] - *context.warmup_steps;
    return number_wanted(number == steps, steps);
  }
  const double batch = *context.global_batch;
  if (rule.test == Test::rate_405b) {
    // Exactly so, and in this order: the checker compares doubles.
    const bool right = number * kReferenceBatch == batch * kReferenceRate;
    return number_wanted(right, kReferenceRate * batch / kReferenceBatch);
  }
  if (rule.test == Test::rate_deepseek) {
    const double rate = kDeepseekRate * std::sqrt(batch / kDeepseekBatch);
    return number_wanted(std::abs(number - rate) < kDeepseekTolerance, rate);
  }
  const double steps = std::ceil(kReferenceSteps * kReferenceBatch / batch) -
                       std::ceil(kReferenceWarmup * kReferenceBatch / batch);
  return number_wanted(number == steps, steps);
}

std::string test_integer(const KeyRule& rule, double number) {
  const bool integer = std::abs(std::nearbyint(number) - number) < kIntegerTolerance;
  if (rule.numbers.empty()) return integer ? "" : "an integer";
  return integer && number >= rule.numbers[0] ? ""
                                              : fmt::format("an integer from {}", rule.numbers[0]);
}

std::string test_number(const KeyRule& rule, double number, const RuleContext& context) {
  if (rule.test == Test::positive) return number > 0 ? "" : "a number above 0";
  if (rule.test == Test::integer) return test_integer(rule, number);
  if (rule.test == Test::at_least) {
    return number >= rule.numbers[0] ? "" : fmt::format("a number from {}", rule.numbers[0]);
  }
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

std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = std::trunc(value.get<double>());
    if (!(std::abs(number) < 0x1p62)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (!value.is_string()) return std::nullopt;
  const std::string_view text = trim(value.get_ref<const std::string&>());
  int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string lacks_number(const KeyRule& rule, const RuleContext& context) {
  const bool needs_warmup = rule.test == Test::decay_after_warmup;
  if (needs_warmup) return context.warmup_steps ? "" : "opt_learning_rate_warmup_steps";
  const bool needs_batch = rule.test == Test::rate_405b || rule.test == Test::decay_405b ||
                           rule.test == Test::rate_deepseek || rule.needs == "global_batch_size";
  return needs_batch && !context.global_batch ? "global_batch_size" : "";
}

std::optional<double> first_samples_count(const KeyRule& rule, const RuleContext& context) {
  if ((rule.first_steps == 0 && rule.first_samples == 0) || !context.global_batch) {
    return std::nullopt;
  }
  const double batch = *context.global_batch;
  return batch * std::floor(rule.first_steps + rule.first_samples / batch);
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

bool is_placeholder(const Json& value) {
  if (!value.is_string()) return false;
  std::string text = value.get<std::string>();
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text.find("placeholder") != std::string::npos;
}

bool reaches_target(const KeyRule& rule, const Json& value) {
  const auto number = as_number(value);
  return number && *number > rule.above && *number <= rule.at_most;
}

}  // namespace tutti::mlperf
