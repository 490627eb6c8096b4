#include "tutti/endpoint/openai_error.h"

#include "tutti/base/json.h"

namespace tutti::endpoint {
namespace {

constexpr const char* kRetrySeconds = "2";

const char* type_of(int status) {
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

std::string error_json(const ApiError& error) {
  return dump_json({{"error",
                     {{"message", error.what()},
                      {"type", type_of(error.status())},
                      {"param", text_or_null(error.param())},
                      {"code", text_or_null(error.code())}}}});
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status();
  response.content_type = "application/json";
  response.body = error_json(error) + "\n";
  if (error.status() == 429 || error.status() == 503) {
    response.headers.emplace_back("Retry-After", kRetrySeconds);
  }
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace tutti::endpoint
