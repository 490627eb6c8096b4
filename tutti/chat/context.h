// Limits of a rendering, and errors with line numbers: templates are untrusted, so every rendering
// ends in bounded time with a bounded amount of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

struct Limits {
  int64_t steps = 20'000'000;  // expressions, statements, items; 256 bytes of text count as one
  int64_t text_bytes = int64_t{64} << 20;  // of a single text, including the result
  int64_t total_bytes = int64_t{1} << 30;  // of all texts and lists that are created
  int nesting = 500;                       // of executing statements, expressions and macros
};

class Context {
 public:
  Context(const std::string& origin, const Limits& limits, double now_seconds)
      : limits_(limits), now_seconds_(now_seconds), origin_(origin) {}

  void at(int line) { line_ = line; }
  double now_seconds() const { return now_seconds_; }

  void step(int64_t steps = 1) {
    if ((steps_ += steps) <= limits_.steps) return;
    refuse("the template takes more than {} steps; it may loop without end", limits_.steps);
  }
  // Called before a text of `bytes` bytes is read or created.
  void read(size_t bytes) { step(static_cast<int64_t>(bytes / 256) + 1); }
  // Called before a text or list of `bytes` bytes is created.
  void grow(size_t bytes) const {
    if (static_cast<int64_t>(bytes) <= limits_.text_bytes) return;
    refuse("the template makes a text or list of more than {} bytes", limits_.text_bytes);
  }
  void make(size_t bytes) {
    grow(bytes);
    read(bytes);
    if ((made_ += static_cast<int64_t>(bytes)) <= limits_.total_bytes) return;
    refuse("the template makes more than {} bytes of texts and lists", limits_.total_bytes);
  }
  void make_items(size_t items) { make(items * sizeof(Value)); }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::usage, "{}:{}: {}", origin_, line_,
         fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorKind::unsupported, "{}:{}: {} is not supported in chat templates here", origin_,
         line_, what);
  }

  // One level of nested execution.
  class Level {
   public:
    explicit Level(Context& context) : context_(context) {
      if (++context_.nesting_ <= context_.limits_.nesting) return;
      --context_.nesting_;
      context_.refuse("the template is nested more than {} deep; a macro may call itself",
                      context_.limits_.nesting);
    }
    ~Level() { --context_.nesting_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Context& context_;
  };

 private:
  const Limits limits_;
  const double now_seconds_;
  const std::string& origin_;
  int line_ = 1;
  int64_t steps_ = 0;
  int64_t made_ = 0;
  int nesting_ = 0;
};

// Reads the arguments of a call in the order of its parameters.
class ArgumentReader {
 public:
  ArgumentReader(Context& context, std::string callee, Arguments& arguments)
      : context_(context), callee_(std::move(callee)), arguments_(arguments) {}

  // Null if not given.
  const Value* next(const char* name);
  const Value& required(const char* name);
  bool flag(const char* name, bool fallback);
  std::optional<int64_t> integer(const char* name);   // none counts as not given
  std::optional<std::string> text(const char* name);  // likewise
  std::string required_text(const char* name);
  void done();  // refuses remaining arguments

 private:
  Context& context_;
  std::string callee_;
  Arguments& arguments_;
  size_t at_ = 0;
  std::vector<bool> used_;
};

}  // namespace tutti::chat
