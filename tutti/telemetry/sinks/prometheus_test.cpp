#include "tutti/telemetry/sinks/prometheus.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::telemetry {
namespace {

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

// What GET /metrics answers.
std::string scrape(int port) {
  const int fd = connect_to(port);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(::write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(fd, buffer, sizeof buffer)) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  ::close(fd);
  return answer;
}

StepDone step_done(int64_t number) {
  StepDone event;
  event.step = number;
  event.tokens = number * 1000;
  event.loss = 2.5;
  event.step_seconds = 0.02;
  event.mfu = 0.5;
  event.data_wait_seconds = 0.25;
  return event;
}

TEST(Prometheus, ServesWhatEventsTell) {
  PrometheusSink sink("127.0.0.1", 0);
  EXPECT_EQ(scrape(sink.port()).find("tutti_loss"), std::string::npos);  // no value yet
  RunStarted run;
  run.run = "runs/a";
  run.steps = 10;
  run.target_loss = 1.5;
  MachineDescribed machine;
  machine.version = "1.2.3";
  machine.cpu = "a \"quoted\" one";
  sink.write({1, run});
  sink.write({1, machine});
  sink.write({1, MemoryMeasured{0, 1000, 2000, {{"weights", 640}}}});
  sink.write({1, step_done(1)});
  sink.write({1, step_done(2)});
  sink.write({1, EvaluationDone{2, 2.25, 100, 0.5}});
  sink.write({1, CheckpointSaved{2, "p", 10, 0.003, 0.1}});
  const std::string text = scrape(sink.port());
  for (const char* line : {
           "tutti_planned_steps 10\n",
           "tutti_target_loss 1.5\n",
           "version=\"1.2.3\"",
           "cpu=\"a \\\"quoted\\\" one\"",
           "tutti_memory_bytes{kind=\"weights\"} 640\n",
           "tutti_memory_bytes{kind=\"resident\"} 1000\n",
           "# TYPE tutti_step_seconds histogram\n",
           "tutti_step_seconds_count 2\n",
           "tutti_step_seconds_bucket{le=\"0.01\"} 0\n",
           "tutti_step_seconds_bucket{le=\"0.025\"} 2\n",
           "tutti_tokens_total 2000\n",
           "tutti_loss 2.5\n",
           "tutti_mfu_ratio 0.5\n",
           "tutti_data_wait_seconds_total 0.5\n",
           "tutti_validation_loss 2.25\n",
           "tutti_checkpoint_stall_seconds_count 1\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST(Prometheus, ServesWhatGpusTell) {
  PrometheusSink sink("127.0.0.1", 0);
  GpuMeasured gpu;
  gpu.gpu = "0000:1a:00.0";
  gpu.power_watts = 650.5;
  gpu.energy_joules = 1e9;
  gpu.clock_hertz = 1.5e9;
  gpu.temperature_celsius = 61;
  gpu.throttled = {"power cap"};
  sink.write({1, gpu});
  gpu.energy_joules = 1e9 + 5000;
  gpu.throttled = {};
  sink.write({2, gpu});
  const std::string text = scrape(sink.port());
  for (const char* line : {
           "tutti_gpu_power_watts{gpu=\"0000:1a:00.0\"} 650.5\n",
           "tutti_gpu_temperature_celsius{gpu=\"0000:1a:00.0\"} 61\n",
           "tutti_gpu_clock_hertz{clock=\"sm\",gpu=\"0000:1a:00.0\"} 1500000000\n",
           "tutti_gpu_energy_joules_total{gpu=\"0000:1a:00.0\"} 5000\n",
           "tutti_gpu_throttled{gpu=\"0000:1a:00.0\",reason=\"power cap\"} 0\n",
       }) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
  EXPECT_EQ(text.find("tutti_gpu_memory_used_bytes"), std::string::npos);  // not reported
}

TEST(Prometheus, CanBeScrapedWhileEventsCome) {
  PrometheusSink sink("127.0.0.1", 0);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int64_t number = 1; !stop; ++number) sink.write({1, step_done(number)});
  });
  for (int i = 0; i < 20; ++i) EXPECT_NE(scrape(sink.port()).find("200 OK"), std::string::npos);
  stop = true;
  writer.join();
}

TEST(Prometheus, SlowClientsDoNotBlockScrapes) {
  const PrometheusSink sink("127.0.0.1", 0);
  std::vector<int> slow(8);
  for (int& fd : slow) {
    fd = connect_to(sink.port());
    EXPECT_EQ(::write(fd, "GET /m", 6), 6);
  }
  EXPECT_NE(scrape(sink.port()).find("200 OK"), std::string::npos);
  for (const int fd : slow) ::close(fd);
}

ErrorKind kind_of_failure(const std::string& address, int port, const std::string& mention) {
  try {
    const PrometheusSink sink(address, port);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(mention), std::string::npos) << error.what();
    return error.kind();
  }
  ADD_FAILURE() << "listens on " << address;
  return ErrorKind::diverged;
}

TEST(Prometheus, SaysWhyItCannotListen) {
  const PrometheusSink first("127.0.0.1", 0);
  EXPECT_EQ(kind_of_failure("127.0.0.1", first.port(), "in use"), ErrorKind::io);
  EXPECT_EQ(kind_of_failure("192.0.2.1", 0, "telemetry.metrics_address"), ErrorKind::usage);
  EXPECT_EQ(kind_of_failure("localhost", 0, "numeric"), ErrorKind::usage);
}

}  // namespace
}  // namespace tutti::telemetry
