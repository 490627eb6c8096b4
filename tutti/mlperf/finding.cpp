#include "tutti/mlperf/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

constexpr int64_t kMostOfOneRule = 20;

}  // namespace

bool compliant(const std::vector<Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(), [](const Finding& f) { return f.warning; });
}

Json to_json(const Finding& finding) {
  return {{"file", finding.file},       {"line", finding.line},
          {"rule", finding.rule},       {"severity", finding.warning ? "warning" : "error"},
          {"message", finding.message}, {"remedy", finding.remedy}};
}

std::string format_finding(const Finding& finding) {
  const std::string place =
      finding.line > 0 ? fmt::format("{}:{}", finding.file, finding.line) : finding.file;
  return fmt::format("{}: {}{}: {}\n    {}", printable(place), finding.warning ? "warning: " : "",
                     finding.rule, printable(finding.message), printable(finding.remedy));
}

void Findings::error(int64_t line, std::string_view rule, std::string message, std::string remedy) {
  add({file_, line, std::string(rule), std::move(message), std::move(remedy), false});
}

void Findings::warning(int64_t line, std::string_view rule, std::string message,
                       std::string remedy) {
  add({file_, line, std::string(rule), std::move(message), std::move(remedy), true});
}

void Findings::add(Finding finding) {
  auto count = std::find_if(counts_.begin(), counts_.end(), [&](const Count& c) {
    return c.rule == finding.rule && c.warning == finding.warning;
  });
  if (count == counts_.end()) {
    count = counts_.insert(counts_.end(), {finding.rule, finding.warning, 0});
  }
  if (++count->seen <= kMostOfOneRule) findings_.push_back(std::move(finding));
}

std::vector<Finding> Findings::take() {
  for (const Count& count : counts_) {
    if (count.seen <= kMostOfOneRule) continue;
    findings_.push_back({file_, 0, count.rule,
                         fmt::format("{} more like these", count.seen - kMostOfOneRule),
                         "repair the first ones; they often have one cause", count.warning});
  }
  counts_.clear();
  return std::move(findings_);
}

}  // namespace tutti::mlperf
