#include "tutti/train/tasks/bench_history.h"

#include <gnu/libc-version.h>
#include <oneapi/dnnl/dnnl.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/quantile.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

constexpr double kAssumedSpread = 0.02;
constexpr double kAssumedRows = 3;
constexpr double kDeviations = 3;
// Standard deviations of a normal distribution per median absolute deviation; half the distance
// between the quartiles is the same.
constexpr double kPerDeviation = 1.4826;
constexpr double kHalfPi = 1.5707963267948966;  // variance of a median over that of a mean

BenchRow row_of(const Json& json, const std::string& origin) {
  BenchRow row;
  row.time = json_get<std::string>(json, "time", origin);
  row.version = json_get<std::string>(json, "version", origin);
  row.machine = json_get<Json>(json, "machine", origin);
  const Json figures = json_get<Json>(json, "figures", origin);
  for (const auto& [name, figure] : figures.items()) {
    const auto value = json_get<double>(figure, "value", origin);
    const auto noise = json_get<double>(figure, "noise", origin);
    if (value > 0) row.figures[name] = {value, noise};
  }
  return row;
}

// Of the rows' values over their median.
double variance_of_rows(const std::vector<double>& values, double median) {
  std::vector<double> deviations;
  deviations.reserve(values.size());
  for (const double value : values) deviations.push_back(std::abs(value / median - 1));
  const double spread = kPerDeviation * quantile(deviations, 0.5);
  const auto others = static_cast<double>(values.size()) - 1;
  return (kAssumedRows * kAssumedSpread * kAssumedSpread + others * spread * spread) /
         (kAssumedRows + others);
}

}  // namespace

BenchFigure bench_figure(const std::vector<double>& repetitions) {
  const double deviation = kPerDeviation * relative_spread(repetitions);
  return {quantile(repetitions, 0.5),
          deviation * std::sqrt(kHalfPi / static_cast<double>(repetitions.size()))};
}

Json bench_machine() {
  const Machine machine = describe_machine();
  utsname system{};
  ::uname(&system);
  const dnnl_version_t* dnnl = dnnl_version();
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_gib",
           std::llround(static_cast<double>(machine.memory_bytes) / static_cast<double>(1 << 30))},
          {"kernel", system.release},
          {"glibc", ::gnu_get_libc_version()},
          {"onednn", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)},
          {"compiler", __VERSION__}};
}

bool same_kind(const Json& machine, const Json& other) {
  const auto same = [&](const char* key) {
    return machine.contains(key) && other.contains(key) && machine.at(key) == other.at(key);
  };
  return same("cpu") && same("cores") && same("memory_gib");
}

std::vector<BenchRow> read_bench_history(FileSystem& files, const std::string& path) {
  std::vector<BenchRow> rows;
  if (!files.exists(path)) return rows;
  const std::string text = read_file(files, path);
  for (const std::string_view line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    try {
      rows.push_back(row_of(parse_json(line, path), path));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::corrupt) throw;
    }
  }
  return rows;
}

Json to_json(const BenchRow& row) {
  Json figures = Json::object();
  for (const auto& [name, figure] : row.figures) {
    figures[name] = {{"value", figure.value}, {"noise", figure.noise}};
  }
  return {{"time", row.time},
          {"version", row.version},
          {"machine", row.machine},
          {"figures", std::move(figures)}};
}

void append_bench_row(FileSystem& files, const std::string& path, const BenchRow& row) {
  files.create_directories(parent_path(path));
  // A line that was cut off must not take this one with it.
  const bool torn = files.exists(path) && files.size_bytes(path) > 0 &&
                    !ends_with(files.map(path)->bytes(), "\n");
  const std::string line = (torn ? "\n" : "") + dump_json(to_json(row)) + "\n";
  const auto file = files.open_append(path);
  file->append(line.data(), line.size());
  file->sync();
  file->close();
}

const char* bench_verdict_name(BenchVerdict verdict) {
  switch (verdict) {
    case BenchVerdict::first: return "first";
    case BenchVerdict::same: return "same";
    case BenchVerdict::slower: return "slower";
    case BenchVerdict::faster: return "faster";
  }
  return "?";
}

std::vector<BenchJudgement> judge_bench(const std::vector<BenchRow>& before, const BenchRow& now) {
  std::vector<BenchJudgement> out;
  for (const auto& [name, figure] : now.figures) {
    BenchJudgement judgement;
    judgement.figure = name;
    judgement.value = figure.value;
    std::vector<double> values;
    for (auto row = before.rbegin(); row != before.rend(); ++row) {
      const auto found = row->figures.find(name);
      if (found == row->figures.end() || !same_kind(row->machine, now.machine)) continue;
      values.push_back(found->second.value);
      if (static_cast<int64_t>(values.size()) == kBenchRows) break;
    }
    judgement.rows = static_cast<int64_t>(values.size());
    if (!values.empty()) {
      const auto rows = static_cast<double>(values.size());
      judgement.reference = quantile(values, 0.5);
      judgement.change = figure.value / judgement.reference - 1;
      const double variance =
          std::max(figure.noise * figure.noise, variance_of_rows(values, judgement.reference));
      judgement.limit = kDeviations * std::sqrt(variance * (1 + kHalfPi / rows));
      judgement.verdict = judgement.change < -judgement.limit  ? BenchVerdict::slower
                          : judgement.change > judgement.limit ? BenchVerdict::faster
                                                               : BenchVerdict::same;
    }
    out.push_back(judgement);
  }
  return out;
}

}  // namespace tutti::train
