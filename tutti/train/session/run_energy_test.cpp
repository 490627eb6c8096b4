#include "tutti/train/session/run_energy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNone = "libno-such-library.so.1";

TEST(RunEnergy, ReportsWhatWasCounted) {
  EXPECT_EQ(energy_source({}), "");
  EXPECT_EQ(energy_source({.hosts = 1}), "");
  EXPECT_EQ(energy_source({.hosts = 1, .hosts_with_processor = 1}), "counter: processors (RAPL)");
  EXPECT_EQ(
      energy_source({.hosts = 2, .hosts_with_processor = 2, .gpus = 8, .gpus_with_counter = 8}),
      "counter: processors (RAPL), 8 GPUs (NVML)");
  EXPECT_EQ(energy_source({.hosts = 1, .gpus = 1, .gpus_with_counter = 1}),
            "counter: 1 GPU (NVML); not processors");
  EXPECT_EQ(
      energy_source({.hosts = 3, .hosts_with_processor = 1, .gpus = 2, .gpus_with_counter = 1}),
      "counter: processors (RAPL), 1 GPU (NVML); not the processors of 2 hosts, 1 GPU");
}

TEST(RunEnergy, HostsAddUp) {
  EnergyUsed sum{.processor_joules = 1, .hosts = 1, .hosts_with_processor = 1};
  sum += {.processor_joules = 2,
          .gpu_joules = 3,
          .hosts = 1,
          .hosts_with_processor = 1,
          .gpus = 4,
          .gpus_with_counter = 4};
  EXPECT_EQ(sum.joules(), 6);
  EXPECT_EQ(energy_source(sum), "counter: processors (RAPL), 4 GPUs (NVML)");
}

TEST(RunEnergy, CountsProcessorsSinceItWasMade) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("tutti_run_energy_" + std::to_string(::getpid()));
  fs::create_directories(folder / "intel-rapl:0");
  std::ofstream(folder / "intel-rapl:0" / "max_energy_range_uj") << 9'000'000;
  const auto write = [&](uint64_t energy) {
    std::ofstream(folder / "intel-rapl:0" / "energy_uj") << energy;
  };
  write(1'000'000);
  RunEnergy energy(posix_file_system(), {}, folder.string(), kNone);
  write(3'500'000);
  EXPECT_DOUBLE_EQ(energy.used().joules(), 2.5);
  EXPECT_EQ(energy.used().hosts_with_processor, 1);
  fs::remove_all(folder);
}

TEST(RunEnergy, CountsTheGpusThatHaveACounter) {
  RunEnergy energy(posix_file_system(), {"0000:1a:00.0", "0000:2b:00.0"}, "/no/such/folder",
                   TUTTI_FAKE_NVML);
  const EnergyUsed used = energy.used();
  EXPECT_EQ(used.gpus, 2);
  EXPECT_EQ(used.gpus_with_counter, 1);  // the other one does not report it
  EXPECT_EQ(used.gpu_joules, 0);         // its counter stands still
  EXPECT_EQ(energy_source(used), "counter: 1 GPU (NVML); not processors, 1 GPU");
}

TEST(RunEnergy, WithoutCountersThereIsNone) {
  RunEnergy energy(posix_file_system(), {"0000:1a:00.0"}, "/no/such/folder", kNone);
  EXPECT_EQ(energy_source(energy.used()), "");
}

}  // namespace
}  // namespace tutti::train
