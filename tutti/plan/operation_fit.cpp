#include "tutti/plan/operation_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "tutti/plan/least_squares.h"

namespace tutti::plan {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Fits `variables` of `constants` to the groups that `use` accepts.
void fit_variables(const FitContext& context, const std::vector<OpGroup>& groups,
                   const std::vector<Constant>& variables,
                   const std::function<bool(const OpGroup&)>& use, Constants& constants) {
  std::vector<double> start, least, most;
  for (const Constant variable : variables) {
    const ConstantInfo& info = constant_table()[static_cast<size_t>(variable)];
    start.push_back(constants[variable]);
    least.push_back(info.least);
    most.push_back(info.most);
  }
  const auto with = [&](const std::vector<double>& values) {
    Constants out = constants;
    for (size_t i = 0; i < variables.size(); ++i) out[variables[i]] = values[i];
    return out;
  };
  const auto residuals = [&](const std::vector<double>& values) {
    const Constants trial = with(values);
    std::vector<double> out;
    for (const OpGroup& group : groups) {
      if (!use(group)) continue;
      out.push_back(std::sqrt(group.share) *
                    std::log(context.predict(group, trial) / group.seconds));
    }
    return out;
  };
  if (residuals(start).empty()) return;
  constants = with(fit_least_squares(residuals, start, least, most));
  for (const Constant variable : variables) {
    constants.origin[static_cast<size_t>(variable)] = Origin::measured;
  }
}

const std::vector<Constant> kProductVariables = {Constant::gemm_ratio, Constant::gemm_side_count,
                                                 Constant::gemm_depth_count};

// The weighted mean share of the peak that the groups named `name` reach.
void fit_one_attention(const FitContext& context, const std::vector<OpGroup>& groups,
                       const char* name, Constant ratio, Constants& constants) {
  double sum = 0;
  double weight = 0;
  const spec::Precision precision = context.precision;
  const double peak = catalog::product_flops(
      context.system.chip, precision == spec::Precision::f32 ? precision : spec::Precision::bf16);
  for (const OpGroup& group : groups) {
    if (group.name != name) continue;
    sum += group.share * std::log(group.op.flops / group.seconds / peak);
    weight += group.share;
  }
  if (weight == 0) return;
  const ConstantInfo& info = constant_table()[static_cast<size_t>(ratio)];
  constants[ratio] = std::clamp(std::exp(sum / weight), info.least, info.most);
  constants.origin[static_cast<size_t>(ratio)] = Origin::measured;
}

}  // namespace

std::vector<OpGroup> group_operations(const RunTrace& trace) {
  struct Member {
    const TracedOperation* first = nullptr;
    std::vector<double> seconds;
  };
  std::map<std::tuple<std::string, std::array<int64_t, 6>, double>, Member> members;
  double total = 0;
  for (const TracedOperation& operation : trace.operations) {
    Member& member = members[{operation.name, operation.dims, operation.bytes}];
    if (member.first == nullptr) member.first = &operation;
    member.seconds.push_back(operation.seconds);
  }
  std::vector<OpGroup> groups;
  const auto steps = static_cast<double>(trace.step_seconds.size());
  for (const auto& [key, member] : members) {
    OpGroup group;
    group.name = member.first->name;
    group.op.dims = member.first->dims;
    group.op.flops = member.first->flops;
    group.op.bytes = member.first->bytes;
    group.seconds = mean(member.seconds);
    group.calls_per_step = static_cast<double>(member.seconds.size()) / steps;
    if (!(group.seconds > 0)) continue;  // below the clock's resolution
    total += group.seconds * group.calls_per_step;
    groups.push_back(std::move(group));
  }
  for (OpGroup& group : groups) {
    group.op.name = group.name.c_str();
    group.share = group.seconds * group.calls_per_step / total;
  }
  return groups;
}

bool is_product(const OpGroup& group) { return group.name.find("gemm") != std::string::npos; }

void fit_products(const FitContext& context, const std::vector<OpGroup>& groups,
                  const std::function<bool(const OpGroup&)>& use, Constants& constants) {
  fit_variables(
      context, groups, kProductVariables,
      [&](const OpGroup& group) { return is_product(group) && use(group); }, constants);
}

void fit_attention(const FitContext& context, const std::vector<OpGroup>& groups,
                   Constants& constants) {
  fit_one_attention(context, groups, "attention_forward", Constant::attention_ratio, constants);
  fit_one_attention(context, groups, "attention_backward", Constant::attention_backward_ratio,
                    constants);
}

// Bytes per second of each memory-bound operation, as a share of the bandwidth.
void fit_memory(const FitContext& context, const std::vector<OpGroup>& groups,
                Constants& constants) {
  const double launch = constants[Constant::launch_microseconds] * 1e-6;
  std::map<std::string, std::pair<double, double>> sums;  // share x ln ratio, share
  for (const OpGroup& group : groups) {
    if (is_product(group) || group.name.rfind("attention", 0) == 0) continue;
    const double seconds = std::max(group.seconds - launch, 0.1 * group.seconds);
    const double ratio = group.op.bytes / seconds / context.system.chip.memory_bytes_per_second;
    auto& [sum, weight] = sums[group.name];
    sum += group.share * std::log(std::max(ratio, 1e-9));
    weight += group.share;
  }
  constants.operation_ratios.clear();
  for (const auto& [name, entry] : sums) {
    constants.operation_ratios.emplace_back(
        name, std::clamp(std::exp(entry.first / entry.second), kLeastOperationRatio,
                         kMostOperationRatio));
  }
}

double products_ratio(const FitContext& context, const std::vector<OpGroup>& groups,
                      const Constants& constants) {
  double sum = 0;
  double weight = 0;
  for (const OpGroup& group : groups) {
    if (!is_product(group)) continue;
    sum += group.share * std::log(context.predict(group, constants) / group.seconds);
    weight += group.share;
  }
  return weight > 0 ? std::exp(sum / weight) : 1;
}

}  // namespace tutti::plan
