// A page of our server: it has one more script, and may fetch from and post forms to that server.
#pragma once

#include <string>

#include "tutti/report/page.h"

namespace tutti::report {

// As render() (page.h). `script`: path of the script on the server that the page comes from.
std::string render_served(const Page& page, const std::string& script);

// The Content-Security-Policy that such pages carry, for the server to send with every answer.
std::string served_policy();

}  // namespace tutti::report
