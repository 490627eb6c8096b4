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

// Stacks that all began at a multiple of a page would meet in few lines of the caches.
constexpr size_t kSkews = 32;
constexpr size_t kSkewBytes = 320;

// The address sanitizer keeps to one stack until it is told of another. `kept`: where what it knows
// of the stack that is left goes, null when nobody comes back to it.
void tell_switch([[maybe_unused]] void** kept, [[maybe_unused]] const void* stack,
                 [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(kept, stack, bytes);
#endif
}
void tell_switched([[maybe_unused]] void* kept, [[maybe_unused]] const void** stack,
                   [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(kept, stack, bytes);
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
  TUTTI_CHECK(stack_ != MAP_FAILED, "no memory for the stack of a fiber");
}

Fiber::~Fiber() { ::munmap(stack_, kStackBytes); }

void Fiber::begin(const std::function<void()>& body) {
  TUTTI_CHECK(!inside_, "a fiber begins twice");
  context::stack_context stack;
  stack.size = kStackBytes - skew_;
  stack.sp = static_cast<char*>(stack_) + stack.size;  // it grows downwards
  inside_ = context::fiber(std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
                           KeepStack(), [this, &body](context::fiber&& outside) {
                             outside_ = std::move(outside);
                             tell_switched(nullptr, &outer_stack_, &outer_bytes_);
                             body();
                             tell_switch(nullptr, outer_stack_, outer_bytes_);
                             return std::move(outside_);
                           });
}

bool Fiber::resume() {
  void* left = nullptr;
  tell_switch(&left, stack_, kStackBytes);
  inside_ = std::move(inside_).resume();
  tell_switched(left, nullptr, nullptr);
  return !inside_;
}

void Fiber::pause() {
  void* left = nullptr;
  tell_switch(&left, outer_stack_, outer_bytes_);
  outside_ = std::move(outside_).resume();
  tell_switched(left, &outer_stack_, &outer_bytes_);
}

}  // namespace tutti::engine::on_host
