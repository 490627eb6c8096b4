// A page that a server of ours gives out: it has one more script, may ask that server, and send its
// forms there.
#pragma once

#include <string>

#include "tutti/report/page.h"

namespace tutti::report {

// As render() (page.h). `script`: path of the script on the server that the page comes from.
std::string render_served(const Page& page, const std::string& script);

// The Content-Security-Policy that such pages carry, for the server to send with every answer.
std::string served_policy();

}  // namespace tutti::report
