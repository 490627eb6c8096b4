// A function that can pause in its middle: with a stack of its own, on the thread that resumes it.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>

namespace tutti::engine::on_host {

class Fiber {
 public:
  explicit Fiber(size_t number);  // of those that run together
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() begins `body`, which must outlive it and not throw. An earlier one has ended.
  void begin(const std::function<void()>& body);
  // Goes on with it; true when it has ended.
  bool resume();
  // From within: back to who resumed it, until that resumes it again.
  void pause();

 private:
  const size_t skew_;
  void* stack_ = nullptr;
  boost::context::fiber inside_, outside_;
  // Of who resumed it, for the address sanitizer.
  const void* outer_stack_ = nullptr;
  size_t outer_bytes_ = 0;
};

}  // namespace tutti::engine::on_host
