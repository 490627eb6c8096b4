#include "tutti/base/energy_meter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti {
namespace {

namespace fs = std::filesystem;

TEST(EnergyMeter, AddsPackagesAndHandlesCounterWrap) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("tutti_energy_" + std::to_string(::getpid()));
  const auto write = [&](const char* counter, uint64_t energy) {
    fs::create_directories(folder / counter);
    std::ofstream(folder / counter / "energy_uj") << energy << "\n";
    std::ofstream(folder / counter / "max_energy_range_uj") << 7'200'000 << "\n";
  };
  write("intel-rapl:0", 1'000'000);
  write("intel-rapl:0:0", 0);  // a part of package 0
  write("intel-rapl:1", 7'000'000);
  EnergyMeter meter(posix_file_system(), folder.string());
  EXPECT_EQ(meter.micro_kwh(), 0);
  write("intel-rapl:0", 4'600'000);  // 3.6 J
  write("intel-rapl:0:0", 3'000'000);
  write("intel-rapl:1", 7'000'000 - 7'200'000 + 3'600'000);  // 3.6 J, over the edge
  meter.sample();
  EXPECT_EQ(meter.micro_kwh(), 2);
  EXPECT_DOUBLE_EQ(meter.joules().value(), 7.2);
  EXPECT_FALSE(EnergyMeter(posix_file_system(), (folder / "none").string()).joules());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tutti
