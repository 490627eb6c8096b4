#include "tutti/endpoint/openai_error.h"

#include "tutti/base/json.h"

namespace tutti::endpoint {
namespace {

constexpr int64_t kRetrySeconds = 2;

const char* type_of(const ApiError& error) {
  if (error.code() == kInsufficientQuota) return kInsufficientQuota;
  const int status = error.status();
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

std::optional<int64_t> ApiError::retry_seconds() const {
  if (status_ != 429 && status_ != 503) return std::nullopt;
  if (code_ == kInsufficientQuota) return std::nullopt;
  return retry_seconds_.value_or(kRetrySeconds);
}

std::string error_json(const ApiError& error) {
  return dump_json({{"error",
                     {{"message", error.what()},
                      {"type", type_of(error)},
                      {"param", text_or_null(error.param())},
                      {"code", text_or_null(error.code())}}}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status();
  response.content_type = "application/json";
  response.body = error_json(error) + "\n";
  if (const auto seconds = error.retry_seconds()) {
    response.headers.emplace_back("Retry-After", std::to_string(*seconds));
  } else if (error.status() == 429) {
    response.headers.emplace_back("x-should-retry", "false");  // OpenAI's clients read it
  }
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace tutti::endpoint
