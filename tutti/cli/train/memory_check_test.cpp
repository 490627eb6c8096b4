#include "tutti/cli/train/memory_check.h"

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

int devices_taken = 0;

TEST(MemoryCheck, LaunchersDoNotCreateADeviceContext) {
  engine::Backend backend;
  backend.devices = [] {
    engine::DeviceInfo device;
    device.memory_bytes = 80;
    return std::vector<engine::DeviceInfo>{device};
  };
  backend.free_bytes = [](int) -> int64_t {
    ++devices_taken;
    return 70;
  };
  EXPECT_EQ(device_room_bytes(backend, kNoDevice), 80);
  EXPECT_EQ(devices_taken, 0);
  EXPECT_EQ(device_room_bytes(backend, 0), 70);
  EXPECT_EQ(devices_taken, 1);
}

}  // namespace
}  // namespace tutti::cli
