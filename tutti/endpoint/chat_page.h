// The chat page at /: one HTML document with its style and script, that asks this endpoint only.
// Conversations stay in the browser.
#pragma once

#include <string>

namespace tutti::endpoint {

// `nonce`: of this response, letters and digits; the policy lets only what carries it run.
std::string chat_page(const std::string& nonce);
// The Content-Security-Policy to send with it.
std::string chat_page_policy(const std::string& nonce);

}  // namespace tutti::endpoint
