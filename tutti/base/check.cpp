#include "tutti/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tutti {
namespace {

// Function-local so that checks work during static initialisation too.
std::string& context() {
  static std::string text;
  return text;
}

}  // namespace

void set_check_context(const std::string& text) { context() = text; }

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "tutti: internal error%s%s: %s\n  check %s failed at %s:%d\n",
               context().empty() ? "" : " on ", context().c_str(), message.c_str(), condition, file,
               line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace tutti
