#include "tutti/train/session/peak_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/json.h"
#include "tutti/base/pretty_json.h"
#include "tutti/base/text.h"

namespace tutti::train {
namespace {

constexpr const char* kPeakFormat = "tutti-peaks";
constexpr size_t kNamedMachines = 4;

std::string peaks_path(const std::string& run_folder) {
  return join_path(run_folder, "peaks.json");
}

std::string sum_of(const Json& peaks) { return hash_hex(hash_text(dump_json(peaks))); }

Json read_peaks(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return Json::object();
  try {
    const Json json = parse_json(read_file(files, path), path);
    const Json peaks = json_get<Json>(json, "peaks", path);
    const bool holds = json_get<std::string>(json, "format", path) == kPeakFormat &&
                       json_get<std::string>(json, "xxh3", path) == sum_of(peaks);
    if (holds && peaks.is_object()) return peaks;
  } catch (const Error&) {
    // Measured again: nothing else depends on it.
  }
  return Json::object();
}

}  // namespace

std::string peak_key(DType compute, const std::vector<PeakMachine>& ranks) {
  std::map<std::string, int64_t> threads;
  for (const PeakMachine& rank : ranks) threads[rank.name] += rank.threads;
  std::vector<std::string> names;
  names.reserve(threads.size());
  for (const auto& [name, count] : threads) {
    names.push_back(fmt::format("{}, {} thread{}", name, count, count == 1 ? "" : "s"));
  }
  const std::string all = join(names, "; ");
  if (names.size() <= kNamedMachines) return fmt::format("{} on {}", dtype_name(compute), all);
  return fmt::format("{} on {} machines, {}", dtype_name(compute), names.size(),
                     hash_hex(hash_text(all)));
}

double best_peak(FileSystem& files, const std::string& run_folder, const std::string& key,
                 double flops_per_second) {
  const std::string path = peaks_path(run_folder);
  Json peaks = read_peaks(files, path);
  const auto known = peaks.find(key);
  if (known != peaks.end() && known->is_number() && known->get<double>() >= flops_per_second) {
    return known->get<double>();
  }
  peaks[key] = flops_per_second;
  try {
    write_file_atomic(
        files, path,
        pretty_json({{"format", kPeakFormat}, {"peaks", peaks}, {"xxh3", sum_of(peaks)}}));
  } catch (const Error&) {
    // A full disk ends no run for the sake of a figure.
  }
  return flops_per_second;
}

}  // namespace tutti::train
