#include "tutti/base/energy_meter.h"

#include <cstdio>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr uint64_t kMicrojoulesPerMicroKwh = 3'600'000;

// These files have no size, so they are not mapped.
std::optional<uint64_t> read_number(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return std::nullopt;
  unsigned long long value = 0;  // NOLINT(google-runtime-int): as fscanf has it
  const bool read = std::fscanf(file, "%llu", &value) == 1;  // NOLINT(cert-err34-c)
  std::fclose(file);
  if (!read) return std::nullopt;
  return value;
}

}  // namespace

EnergyMeter::EnergyMeter(FileSystem& files, const std::string& folder) {
  if (!files.is_directory(folder)) return;
  for (const DirectoryEntry& entry : files.list(folder)) {
    // Packages are intel-rapl:N (also on AMD); parts of them, intel-rapl:N:M, are in their counts.
    if (!starts_with(entry.name, "intel-rapl:") || split(entry.name, ':').size() != 2) continue;
    const std::string path = join_path(folder, entry.name);
    const auto now = read_number(join_path(path, "energy_uj"));
    const auto range = read_number(join_path(path, "max_energy_range_uj"));
    if (now && range) counters_.push_back({join_path(path, "energy_uj"), *range, *now});
  }
}

void EnergyMeter::sample() {
  for (Counter& counter : counters_) {
    const auto now = read_number(counter.path);
    if (!now) continue;
    total_uj_ += *now >= counter.last_uj ? *now - counter.last_uj
                                         : counter.range_uj - counter.last_uj + *now;
    counter.last_uj = *now;
  }
}

std::optional<double> EnergyMeter::joules() const {
  if (counters_.empty()) return std::nullopt;
  return static_cast<double>(total_uj_) * 1e-6;
}

std::optional<int64_t> EnergyMeter::micro_kwh() const {
  if (counters_.empty()) return std::nullopt;
  return static_cast<int64_t>(total_uj_ / kMicrojoulesPerMicroKwh);
}

}  // namespace tutti
