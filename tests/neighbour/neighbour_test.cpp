// A program that computes on two cores beside one busy thread makes at least half the progress of
// one whose threads never spin. By hand, `neighbour_test --spin` shows that the test can fail: it
// compares OMP_WAIT_POLICY=active, with which progress falls to a tenth and less.
//
// Progress of two policies is compared within minutes, in turns, by medians; the machine may be
// slow or have other work. Exit status 77: fewer than two cores.

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/command.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/ops.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {
namespace {

constexpr int kCores = 2;
constexpr int kTurns = 7;
constexpr double kSecondsPerTurn = 1;
constexpr double kLeastShare = 0.5;

const char* policy_under_test = nullptr;  // null: what a user gets, without a variable

// The shape of a training step: short regions of our own, products of oneDNN in between.
class Step {
 public:
  Step() : stream_(cpu_backend().make_stream({.threads = kCores})) {
    for (std::vector<float>& data : operands_) data.assign(kSize * kSize, 0.001F);
    args_.a = matrix(0);
    args_.b = matrix(1);
    args_.c = matrix(2);
  }
  void run() {
    for (int product = 0; product < 4; ++product) {
      stream_->ops().gemm(*stream_, args_);
      for (int region = 0; region < 10; ++region) {
        parallel_ranges(kSize * kSize, kSize, [&](int64_t begin, int64_t end, int /*thread*/) {
          for (int64_t i = begin; i < end; ++i) {
            float& value = operands_[2][static_cast<size_t>(i)];
            value = value * 0.5F + 0.25F;
          }
        });
      }
    }
  }

 private:
  static constexpr int64_t kSize = 256;
  Matrix matrix(size_t index) {
    return {.data = operands_[index].data(),
            .dtype = DType::f32,
            .rows = kSize,
            .cols = kSize,
            .ld = kSize};
  }
  std::unique_ptr<Stream> stream_;
  std::vector<float> operands_[3];
  GemmArgs args_;
};

int measure() {
  Step step;
  step.run();
  const double begin = monotonic_seconds();
  int64_t steps = 0;
  do {
    step.run();
    ++steps;
  } while (monotonic_seconds() < begin + kSecondsPerTurn);
  std::printf("%.6f\n", static_cast<double>(steps) / (monotonic_seconds() - begin));
  return 0;
}

// Steps per second of a process of its own.
double measured(const char* wait_policy) {
  if (wait_policy == nullptr) {
    unsetenv("OMP_WAIT_POLICY");
  } else {
    setenv("OMP_WAIT_POLICY", wait_policy, 1);
  }
  const CommandResult result = run_command({kThisExecutable, "--measure"}, 120);
  EXPECT_TRUE(result.ok()) << result.error;
  return result.ok() ? std::strtod(result.output.c_str(), nullptr) : 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

TEST(Neighbour, ABusyThreadTakesNoMoreThanItsShare) {
  std::atomic<bool> done{false};
  std::thread busy([&] {
    while (!done.load(std::memory_order_relaxed)) {
    }
  });
  std::vector<double> passive;
  std::vector<double> own;
  for (int turn = 0; turn < kTurns; ++turn) {
    passive.push_back(measured("passive"));
    own.push_back(measured(policy_under_test));
  }
  done.store(true);
  busy.join();
  std::printf("steps/s beside a busy thread: %.1f, without spinning %.1f\n", median(own),
              median(passive));
  EXPECT_GE(median(own), kLeastShare * median(passive));
}

// Of the cores of this process, two: otherwise the busy thread has one for itself.
bool keep_two_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  cpu_set_t kept;
  CPU_ZERO(&kept);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&kept) < kCores; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &kept);
  }
  return CPU_COUNT(&kept) == kCores && sched_setaffinity(0, sizeof kept, &kept) == 0;
}

}  // namespace
}  // namespace tutti::engine

int main(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--measure") return tutti::engine::measure();
  if (first == "--spin") tutti::engine::policy_under_test = "active";
  testing::InitGoogleTest(&argc, argv);
  if (!tutti::engine::keep_two_cores()) return 77;
  return RUN_ALL_TESTS();
}
