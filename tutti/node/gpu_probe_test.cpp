#include "tutti/node/gpu_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tutti/base/error.h"

namespace tutti::node {
namespace {

TEST(GpuProbe, WithoutTheDriversLibraryThereIsNone) {
  EXPECT_FALSE(read_gpus("libno-such-library.so.1"));
}

TEST(GpuProbe, ReadsWhatTheLibraryTells) {
  const auto gpus = read_gpus(TUTTI_FAKE_NVML);
  ASSERT_TRUE(gpus);
  ASSERT_EQ(gpus->size(), 2U);
  const GpuState& well = (*gpus)[0];
  EXPECT_EQ(well.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(well.bus, "00000000:1A:00.0");
  EXPECT_EQ(well.memory_bytes, 80.0 * (1 << 30));
  EXPECT_EQ(well.uncorrectable_errors, 0U);
  EXPECT_EQ(well.remap_failed, false);
  EXPECT_EQ(well.remap_pending, false);
  EXPECT_TRUE(well.throttled.empty());
  EXPECT_EQ(well.temperature_celsius, 35);
  EXPECT_FALSE(well.power_watts);
  EXPECT_EQ(well.clock_megahertz, 1980);
  EXPECT_EQ(well.memory_clock_megahertz, 2619);
  EXPECT_EQ(well.memory_used_bytes, 1073741824.0);
  EXPECT_EQ(well.clock_reasons, 0x05U);
  EXPECT_EQ(well.link_width, 16);
  EXPECT_EQ(well.numa_node, 65);
  EXPECT_EQ(well.energy_joules, 1234.5);
  const GpuState& ill = (*gpus)[1];
  EXPECT_EQ(ill.uncorrectable_errors, 3U);
  EXPECT_EQ(ill.remap_pending, true);
  EXPECT_EQ(ill.throttled, std::vector<std::string>{"too hot (hardware)"});
  EXPECT_EQ(ill.link_width, 8);
  EXPECT_FALSE(ill.numa_node);
  EXPECT_FALSE(ill.energy_joules);
}

TEST(GpuProbe, UnresponsiveDriversAreErrors) {
  setenv("FAKE_NVML_INIT", "18", 1);
  try {
    read_gpus(TUTTI_FAKE_NVML);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("version mismatch"), std::string::npos);
  }
  unsetenv("FAKE_NVML_INIT");
}

TEST(GpuProbe, IdleAndCappedClocksAreNotFaults) {
  EXPECT_TRUE(throttle_faults(0x01 | 0x02 | 0x04 | 0x10 | 0x100).empty());
  EXPECT_EQ(throttle_faults(0xE8).size(), 4U);
  EXPECT_TRUE(throttle_reasons(0x01).empty());
  EXPECT_EQ(throttle_reasons(0x05), std::vector<std::string>{"power cap"});
  EXPECT_EQ(throttle_reasons(0x1FF).size(), 8U);
}

TEST(GpuProbe, FindsXidsInTheKernelsLog) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("kernel_log_" + std::to_string(::getpid()));
  std::ofstream(path) << "6,1,2,-;eth0: link up\n"
                         "3,5,9,-;NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.\n"
                         "6,6,10,-;something else\n";
  const auto xids = read_xids(path.string());
  ASSERT_TRUE(xids);
  ASSERT_EQ(xids->size(), 1U);
  EXPECT_EQ(xids->front(), "NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.");
  std::filesystem::remove(path);
  EXPECT_FALSE(read_xids(path.string()));
}

}  // namespace
}  // namespace tutti::node
