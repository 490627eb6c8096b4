// What the page's server reads of requests, and the answers that it makes.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/http_server.h"
#include "tutti/control/web/forms.h"

namespace tutti::control {

int status_of(ErrorKind kind);  // of HTTP

std::string cookie_of(const HttpRequest& request);  // that of a session; empty: none
// As browsers send it where they trust the connection. It covers logging in, which has no session
// and so no form key yet: another site must not log a user in as someone else.
bool is_from_elsewhere(const HttpRequest& request);
// Seconds of `Prefer: wait=SECONDS` (RFC 7240, 4.3), as far as it is granted: at most 20.
double wanted_wait(const HttpRequest& request);
std::string field_of(const WebFields& fields, const std::string& name);  // empty: absent

HttpResponse answer_of(int status, std::string type, std::string body);
HttpResponse html_of(std::string page, int status = 200);
HttpResponse text_of(int status, const std::string& text);
HttpResponse see(const std::string& location);                  // 303
HttpResponse wait_for(HttpResponse response, int64_t seconds);  // Retry-After
// Behind a proxy with TLS a browser is never to send it in the clear.
void set_cookie(const HttpRequest& request, HttpResponse& response, const std::string& value,
                int64_t seconds);
std::string message_page(const std::string& title, const std::string& text);

}  // namespace tutti::control
