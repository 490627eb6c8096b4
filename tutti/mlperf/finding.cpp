#include "tutti/mlperf/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

constexpr int64_t kMostOfOneRule = 20;
constexpr size_t kMostLocations = 4;

std::string location_of(const Finding& finding) {
  return finding.line > 0 ? fmt::format("{}:{}", finding.file, finding.line) : finding.file;
}

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
  return fmt::format("{}: {}{}: {}\n    {}", printable(location_of(finding)),
                     finding.warning ? "warning: " : "", finding.rule, printable(finding.message),
                     printable(finding.remedy));
}

std::string format_findings(const std::vector<Finding>& findings) {
  using Message = std::tuple<bool, std::string, std::string, std::string>;
  std::map<Message, size_t> index;
  std::vector<std::pair<const Finding*, std::vector<std::string>>> groups;
  for (const Finding& finding : findings) {
    const auto [known, fresh] = index.try_emplace(
        Message(finding.warning, finding.rule, finding.message, finding.remedy), groups.size());
    if (fresh) groups.emplace_back(&finding, std::vector<std::string>());
    groups[known->second].second.push_back(location_of(finding));
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const auto& group) { return !group.first->warning; });
  std::string text;
  for (auto& [first, locations] : groups) {
    const size_t all = locations.size();
    if (all == 1) {
      text += format_finding(*first) + "\n";
      continue;
    }
    locations.resize(std::min(all, kMostLocations));
    text += fmt::format("{}{}: {}\n    {}\n    {} locations: {}{}\n",
                        first->warning ? "warning: " : "", first->rule, printable(first->message),
                        printable(first->remedy), all, printable(join(locations, ", ")),
                        all > locations.size() ? fmt::format(" and {} more", all - locations.size())
                                               : std::string());
  }
  return text;
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
