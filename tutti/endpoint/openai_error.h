// Errors as OpenAI's API words them: {"error": {"message", "type", "param", "code"}} with an HTTP
// status. Inside this folder a request that is refused is an ApiError, thrown to the route that it
// came by. Source: OpenAI's API reference, "Errors".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "tutti/base/http_server.h"

namespace tutti::endpoint {

// The code of 429 where asking again does not help; OpenAI's.
inline constexpr const char* kInsufficientQuota = "insufficient_quota";

class ApiError : public std::exception {
 public:
  // `param`: of the request's body; `code`: for programs; either may be empty.
  ApiError(int status, std::string message, std::string param = "", std::string code = "")
      : status_(status),
        message_(std::move(message)),
        param_(std::move(param)),
        code_(std::move(code)) {}

  // When to ask again, where the status alone does not say.
  ApiError& retry_after(int64_t seconds) {
    retry_seconds_ = seconds;
    return *this;
  }

  int status() const { return status_; }
  // Of 429 and 503; absent: asking again does not help.
  std::optional<int64_t> retry_seconds() const;
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  int status_;
  std::string message_, param_, code_;
  std::optional<int64_t> retry_seconds_;
};

// 400 about one parameter.
template <typename... Args>
[[noreturn]] void refuse_param(const std::string& param, fmt::format_string<Args...> format,
                               Args&&... args) {
  throw ApiError(400, fmt::format(format, std::forward<Args>(args)...), param);
}

// The body, and the whole answer. 429 and 503 say when to try again.
std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

}  // namespace tutti::endpoint
