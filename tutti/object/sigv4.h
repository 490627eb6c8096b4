// AWS Signature Version 4 of one request, by the steps of "Create a signed AWS API request" in
// AWS's documentation: canonical request, string to sign, derived key, Authorization header. The
// path is encoded once and not normalized, as S3 does it.
#pragma once

#include <string>

#include "tutti/object/credentials.h"
#include "tutti/object/transport.h"

namespace tutti::object {

struct Signing {
  Credentials credentials;
  std::string region;
  std::string service = "s3";
  std::string time;            // "20130524T000000Z"
  std::string payload_sha256;  // lower-case hex
};

// Adds x-amz-date, x-amz-content-sha256 (for S3 only), x-amz-security-token where there is one, and
// authorization. All headers that the request has by then are signed, and the host.
void sign(Request& request, const Signing& signing);

// The parts, for tests.
std::string canonical_request(const Request& request, const std::string& payload_sha256);
std::string signed_header_names(const Request& request);

}  // namespace tutti::object
