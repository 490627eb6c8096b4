// A function that can be suspended: it has its own stack and runs on the thread that resumes it.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <functional>

namespace tutti::engine::on_host {

class Fiber {
 public:
  explicit Fiber(size_t number);  // its index among fibers that run together
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next resume() starts `body`, which must outlive it and not throw. An earlier body must have
  // ended.
  void begin(const std::function<void()>& body);
  // Continues the body; true when it has ended.
  bool resume();
  // Called from within the body: returns to the caller of resume() until the next resume().
  void pause();

 private:
  const size_t skew_;
  void* stack_ = nullptr;
  boost::context::fiber inside_, outside_;
  // Stack of the caller of resume(), for the address sanitizer.
  const void* outer_stack_ = nullptr;
  size_t outer_bytes_ = 0;
};

}  // namespace tutti::engine::on_host
