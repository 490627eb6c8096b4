#include "tutti/control/launches/health_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/http_server.h"

namespace tutti::control {
namespace {

namespace fs = std::filesystem;

constexpr HealthRule kQuick{60'000, 20, 3};

// A server whose /health has the status that a test sets, in the place of a launch.
class HealthWatchTest : public testing::Test {
 protected:
  HealthWatchTest() {
    fs::create_directories(path_);
    HttpOptions options;
    options.handler = [this](const HttpRequest& request) {
      ++asked_;
      HttpResponse response;
      response.status = request.path == "/health" ? status_.load() : 404;
      return response;
    };
    options.log = [](const std::string&) {};
    server_ = std::make_unique<HttpServer>(std::move(options));
    runs_ = std::thread([this] { server_->run(); });
  }
  ~HealthWatchTest() override {
    server_->stop();
    runs_.join();
    fs::remove_all(path_);
  }
  void listen() {
    write_file_atomic(files_, folder_.ready_path(1),
                      fmt::format(R"({{"url": "{}"}})", url()) + "\n");
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/", server_->port()); }
  std::string state() const {
    const auto health = folder_.read_health(1);
    return health ? health->state : "";
  }
  template <typename Condition>
  void await(Condition condition) {
    const double end = monotonic_seconds() + 30;
    while (!condition()) {
      ASSERT_LT(monotonic_seconds(), end);
      sleep_seconds(0.005);
    }
  }

  FileSystem& files_ = posix_file_system();
  const fs::path path_ =
      fs::path(testing::TempDir()) / ("tutti_health_watch_" + std::to_string(::getpid()));
  LaunchFolder folder_{files_, path_.string()};
  std::atomic<int> status_ = 200;
  std::atomic<int> asked_ = 0;
  std::unique_ptr<HttpServer> server_;
  std::thread runs_;
};

TEST_F(HealthWatchTest, IsHealthyOnceItAnswers) {
  status_ = 503;
  HealthWatch watch(files_, folder_, 1, kQuick);
  EXPECT_EQ(state(), "starting");
  listen();
  // While it has not been healthy yet only the limit of its start counts.
  await([&] { return asked_ > 5; });
  EXPECT_EQ(state(), "starting");
  status_ = 200;
  await([&] { return state() == "healthy"; });
  EXPECT_EQ(folder_.read_health(1)->url, url());
  EXPECT_EQ(watch.broken(), "");
}

TEST_F(HealthWatchTest, FailuresInARowBreakIt) {
  HealthWatch watch(files_, folder_, 1, kQuick);
  listen();
  await([&] { return state() == "healthy"; });
  // One bad answer is not the end.
  status_ = 500;
  await([&] { return state() == "unhealthy"; });
  EXPECT_NE(folder_.read_health(1)->detail.find("500"), std::string::npos);
  await([&] { return !watch.broken().empty(); });
  EXPECT_NE(watch.broken().find("3 health checks failed in a row"), std::string::npos)
      << watch.broken();
  status_ = 200;
  sleep_seconds(0.1);
  EXPECT_NE(watch.broken(), "");
}

TEST_F(HealthWatchTest, OneThatRecoversIsNotBroken) {
  HealthWatch watch(files_, folder_, 1, {60'000, 20, 1'000'000});
  listen();
  status_ = 500;
  sleep_seconds(0.05);
  status_ = 200;
  await([&] { return state() == "healthy"; });
  status_ = 500;
  await([&] { return state() == "unhealthy"; });
  status_ = 200;
  await([&] { return state() == "healthy"; });
  EXPECT_EQ(watch.broken(), "");
}

TEST_F(HealthWatchTest, OneThatWasAskedToStopIsNotBroken) {
  HealthWatch watch(files_, folder_, 1, kQuick);
  listen();
  await([&] { return state() == "healthy"; });
  watch.end();
  status_ = 503;  // it drains
  sleep_seconds(0.2);
  EXPECT_EQ(watch.broken(), "");
  EXPECT_EQ(state(), "healthy");
}

}  // namespace
}  // namespace tutti::control
