// Invariants of the program. A failed check prints where, what and the values, then aborts:
// continuing would compute garbage. Errors of the outside world are not checks: see error.h.
#pragma once

#include <fmt/format.h>

#include <string>

namespace tutti {

// Text put in front of every check failure of this process, such as "rank 3".
void set_check_context(const std::string& context);

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace tutti

// TUTTI_CHECK(a == b, "gemm: k of A is {} and of B is {}", a, b);
#define TUTTI_CHECK(condition, ...)                                                      \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      ::tutti::check_failed(__FILE__, __LINE__, #condition, ::fmt::format(__VA_ARGS__)); \
    }                                                                                    \
  } while (false)
