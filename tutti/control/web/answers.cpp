#include "tutti/control/web/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/report/html.h"
#include "tutti/report/served_page.h"

namespace tutti::control {
namespace {

constexpr const char* kCookie = "tutti";
constexpr double kMostHeldSeconds = 20;

}  // namespace

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return 400;
    case ErrorKind::permission: return 403;
    case ErrorKind::not_found: return 404;
    default: return 500;
  }
}

std::string cookie_of(const HttpRequest& request) {
  const std::string prefix = std::string(kCookie) + "=";
  const std::string header = request.header("cookie");
  for (const std::string_view part : split(header, ';')) {
    const std::string_view cookie = trim(part);
    if (starts_with(cookie, prefix)) return std::string(cookie.substr(prefix.size()));
  }
  return {};
}

bool is_from_elsewhere(const HttpRequest& request) {
  const std::string site = request.header("sec-fetch-site");
  return !site.empty() && site != "same-origin" && site != "none";
}

HttpResponse answer_of(int status, std::string type, std::string body) {
  HttpResponse response;
  response.status = status;
  response.content_type = std::move(type);
  response.body = std::move(body);
  return response;
}

HttpResponse html_of(std::string page, int status) {
  return answer_of(status, "text/html; charset=utf-8", std::move(page));
}

HttpResponse text_of(int status, const std::string& text) {
  return answer_of(status, "text/plain; charset=utf-8", text + "\n");
}

HttpResponse see(const std::string& location) {
  HttpResponse response = text_of(303, "see " + location);
  response.headers.emplace_back("Location", location);
  return response;
}

double wanted_wait(const HttpRequest& request) {
  const std::string prefer = request.header("prefer");
  const std::string wait = "wait=";
  if (!starts_with(prefer, wait)) return 0;
  int seconds = 0;  // what cannot be read is not a preference
  std::from_chars(prefer.data() + wait.size(), prefer.data() + prefer.size(), seconds);
  return std::clamp<double>(seconds, 0, kMostHeldSeconds);
}

HttpResponse wait_for(HttpResponse response, int64_t seconds) {
  response.headers.emplace_back("Retry-After", std::to_string(seconds));
  return response;
}

void set_cookie(const HttpRequest& request, HttpResponse& response, const std::string& value,
                int64_t seconds) {
  response.headers.emplace_back(
      "Set-Cookie", fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}", kCookie,
                                value, seconds, request.secure ? "; Secure" : ""));
}

std::string field_of(const WebFields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : found->second;
}

std::string message_page(const std::string& title, const std::string& text) {
  report::Page page;
  page.kind = "Control plane";
  page.title = title;
  page.notes = {text};
  page.sections.push_back({"back", "", "<p><a href=\"/\">Back to the page</a></p>\n"});
  return report::render_served(page, kWebScript);
}

}  // namespace tutti::control
