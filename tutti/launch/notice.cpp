#include "tutti/launch/notice.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/message.h"

namespace tutti::launch {

void watch_notice(const std::string& file) {
  if (file.empty()) return;
  std::thread([file] {
    constexpr double kLookSeconds = 0.25;
    while (::access(file.c_str(), F_OK) != 0) sleep_seconds(kLookSeconds);
    print_message(fmt::format("tutti: {} has appeared: saving and stopping\n", file));
    ::kill(::getpid(), SIGUSR2);
  }).detach();
}

}  // namespace tutti::launch
