#include "tutti/engine/testing/on_host/fiber.h"

#include <sys/mman.h>

#include <utility>

#include "tutti/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace tutti::engine::on_host {
namespace {

namespace context = boost::context;

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = size_t{256} << 10;
#else
constexpr size_t kStackBytes = size_t{64} << 10;
#endif

// Stacks that all begin at a multiple of a page would conflict in a few cache sets.
constexpr size_t kSkews = 32;
constexpr size_t kSkewBytes = 320;

// The address sanitizer must be notified of stack switches. `saved` receives its state of the stack
// that is left; null if that stack is not resumed.
void start_switch([[maybe_unused]] void** saved, [[maybe_unused]] const void* stack,
                  [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(saved, stack, bytes);
#endif
}
void finish_switch([[maybe_unused]] void* saved, [[maybe_unused]] const void** stack,
                   [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(saved, stack, bytes);
#endif
}

// Stacks outlive the functions that run on them.
struct KeepStack {
  context::stack_context allocate() { return {}; }
  void deallocate(context::stack_context& /*stack*/) {}
};

}  // namespace

Fiber::Fiber(size_t number) : skew_(number % kSkews * kSkewBytes) {
  stack_ = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TUTTI_CHECK(stack_ != MAP_FAILED, "cannot allocate the stack of a fiber");
}

Fiber::~Fiber() { ::munmap(stack_, kStackBytes); }

void Fiber::begin(const std::function<void()>& body) {
  TUTTI_CHECK(!inside_, "the previous body of the fiber has not ended");
  context::stack_context stack;
  stack.size = kStackBytes - skew_;
  stack.sp = static_cast<char*>(stack_) + stack.size;  // it grows downwards
  inside_ = context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                           KeepStack(), [this, &body](context::fiber&& outside) {
                             outside_ = std::move(outside);
                             finish_switch(nullptr, &outer_stack_, &outer_bytes_);
                             body();
                             start_switch(nullptr, outer_stack_, outer_bytes_);
                             return std::move(outside_);
                           });
}

bool Fiber::resume() {
  void* left = nullptr;
  start_switch(&left, stack_, kStackBytes);
  inside_ = std::move(inside_).resume();
  finish_switch(left, nullptr, nullptr);
  return !inside_;
}

void Fiber::pause() {
  void* left = nullptr;
  start_switch(&left, outer_stack_, outer_bytes_);
  outside_ = std::move(outside_).resume();
  finish_switch(left, &outer_stack_, &outer_bytes_);
}

}  // namespace tutti::engine::on_host
