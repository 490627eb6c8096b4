#include "tutti/cli/control/served.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tutti/base/text.h"
#include "tutti/cli/control/deployment_keys.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/endpoint/use_log.h"

namespace tutti::cli {
namespace {

constexpr int64_t kPicoPerUsd = 1'000'000'000'000;

std::vector<std::string> use_cells(const endpoint::KeyUse& use) {
  return {std::to_string(use.requests), std::to_string(use.prompt_tokens),
          std::to_string(use.cached_tokens), std::to_string(use.answer_tokens),
          usd_text(use.pico_usd)};
}

}  // namespace

Served read_served(FileSystem& files, const control::ControlFolder& plane,
                   const std::vector<std::string>& projects, const std::string& month) {
  Served served;
  if (!files.is_directory(plane.deployments())) return served;
  for (const DirectoryEntry& entry : files.list(plane.deployments())) {
    const size_t plus = entry.name.find('+');
    if (!entry.is_directory || plus == std::string::npos) continue;
    const std::string project = entry.name.substr(0, plus);
    if (std::find(projects.begin(), projects.end(), project) == projects.end()) continue;
    std::map<std::pair<std::string, std::string>, ServedLine> sums;  // by month and key
    const std::string folder = join_path(plane.deployments(), entry.name);
    served.damaged_lines +=
        endpoint::read_use_log(files, use_file_of(folder), [&](const endpoint::UseRecord& record) {
          const std::string when = control::month_of(record.time_ms);
          if (!month.empty() && when != month) return;
          ServedLine& line = sums[{when, record.key}];
          line = {project, entry.name.substr(plus + 1), when, record.key, record.name, line.use};
          line.use += record.use;
        });
    for (auto& [at, line] : sums) served.lines.push_back(std::move(line));
  }
  return served;
}

std::string usd_text(int64_t pico_usd) {
  return fmt::format("{}.{:012}", pico_usd / kPicoPerUsd, pico_usd % kPicoPerUsd);
}

std::string served_csv(const Served& served) {
  std::string text =
      "project,deployment,month,key,client,requests,prompt_tokens,cached_tokens,answer_tokens,"
      "usd\r\n";
  for (const ServedLine& line : served.lines) {
    std::string client = line.client;
    for (size_t at = client.find('"'); at != std::string::npos; at = client.find('"', at + 2)) {
      client.insert(at, 1, '"');
    }
    text += fmt::format("{},{},{},{},\"{}\",{}\r\n", line.project, line.deployment, line.month,
                        line.key, client, join(use_cells(line.use), ","));
  }
  return text;
}

std::string served_text(const Served& served) {
  if (served.lines.empty()) return {};
  std::vector<std::vector<std::string>> rows = {{"project", "deployment", "month", "key", "client",
                                                 "requests", "prompt tokens", "cached",
                                                 "answer tokens", "USD"}};
  std::map<std::pair<std::string, std::string>, endpoint::KeyUse> sums;
  const auto add = [&](std::vector<std::string> row, const endpoint::KeyUse& use) {
    for (std::string& cell : use_cells(use)) row.push_back(std::move(cell));
    rows.push_back(std::move(row));
  };
  for (const ServedLine& line : served.lines) {
    add({line.project, line.deployment, line.month, line.key, line.client}, line.use);
    sums[{line.project, line.deployment}] += line.use;
  }
  for (const auto& [of, use] : sums) add({of.first, of.second, "all", "all", ""}, use);
  return format_table(rows);
}

Json to_json(const Served& served) {
  Json lines = Json::array();
  for (const ServedLine& line : served.lines) {
    lines.push_back({{"project", line.project},
                     {"deployment", line.deployment},
                     {"month", line.month},
                     {"key", line.key},
                     {"client", line.client},
                     {"requests", line.use.requests},
                     {"prompt_tokens", line.use.prompt_tokens},
                     {"cached_tokens", line.use.cached_tokens},
                     {"answer_tokens", line.use.answer_tokens},
                     {"usd", static_cast<double>(line.use.pico_usd) / 1e12},
                     {"pico_usd", line.use.pico_usd}});
  }
  return lines;
}

}  // namespace tutti::cli
