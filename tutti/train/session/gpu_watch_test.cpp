#include "tutti/train/session/gpu_watch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <variant>

#include "tutti/base/clock.h"

namespace tutti::train {
namespace {

constexpr const char* kFirst = "0000:1a:00.0";
constexpr const char* kSecond = "0000:2b:00.0";

class Collector final : public telemetry::Sink {
 public:
  explicit Collector(std::vector<telemetry::Event>& events) : events_(events) {}
  void write(const telemetry::Event& event) override { events_.push_back(event); }

 private:
  std::vector<telemetry::Event>& events_;
};

// The events of a watch that lasts `seconds`.
std::vector<telemetry::Event> watched(std::vector<std::string> gpus, double every_seconds,
                                      double seconds, const std::string& nvml = TUTTI_FAKE_NVML) {
  std::vector<telemetry::Event> events;
  telemetry::Telemetry telemetry;
  telemetry.add(std::make_unique<Collector>(events));
  {
    const GpuWatch watch(telemetry, std::move(gpus), every_seconds, nvml);
    if (seconds > 0) sleep_seconds(seconds);
  }
  telemetry.flush();
  return events;
}

TEST(GpuWatch, TellsWhatTheDriverTells) {
  const auto events = watched({kFirst}, 1000, 0);
  ASSERT_EQ(events.size(), 2U);  // at the start, and at the end
  const auto& event = std::get<telemetry::GpuMeasured>(events[0].body);
  EXPECT_EQ(event.gpu, kFirst);
  EXPECT_EQ(event.name, "NVIDIA H100 80GB HBM3");
  EXPECT_FALSE(event.power_watts);  // this one does not report it
  EXPECT_EQ(event.energy_joules, 1234.5);
  EXPECT_EQ(event.clock_hertz, 1980e6);
  EXPECT_EQ(event.memory_clock_hertz, 2619e6);
  EXPECT_EQ(event.temperature_celsius, 35);
  EXPECT_EQ(event.memory_used_bytes, 1073741824.0);
  EXPECT_EQ(event.throttled, std::vector<std::string>{"power cap"});
}

TEST(GpuWatch, LooksAgainAtItsInterval) {
  // How long four looks take depends on what else the machine does.
  std::vector<telemetry::Event> events;
  for (double seconds = 0.1; events.size() < 8 && seconds < 30; seconds *= 2) {
    events = watched({kFirst, kSecond}, 0.01, seconds);
  }
  ASSERT_GE(events.size(), 8U);
  EXPECT_EQ(std::get<telemetry::GpuMeasured>(events[1].body).gpu, kSecond);
  EXPECT_EQ(std::get<telemetry::GpuMeasured>(events[1].body).throttled,
            std::vector<std::string>{"too hot (hardware)"});
}

TEST(GpuWatch, IntervalsBeyondTheClockAreLong) {
  EXPECT_EQ(watched({kFirst}, 1e30, 0.05).size(), 2U);
}

TEST(GpuWatch, IsSilentWithoutGpus) {
  EXPECT_TRUE(watched({}, 0.01, 0.05).empty());
  EXPECT_TRUE(watched({kFirst}, 0, 0.05).empty());
  EXPECT_TRUE(watched({"0000:ff:00.0"}, 0.01, 0.05).empty());
  EXPECT_TRUE(watched({kFirst}, 0.01, 0.05, "libno-such-library.so.1").empty());
}

TEST(GpuWatch, UnresponsiveDriversAreReportedOnce) {
  setenv("FAKE_NVML_INIT", "18", 1);
  const auto events = watched({kFirst}, 0.01, 0.05);
  unsetenv("FAKE_NVML_INIT");
  ASSERT_EQ(events.size(), 1U);
  const auto& message = std::get<telemetry::Message>(events[0].body);
  EXPECT_EQ(message.level, telemetry::Level::warning);
  EXPECT_NE(message.text.find("version mismatch"), std::string::npos);
}

}  // namespace
}  // namespace tutti::train
