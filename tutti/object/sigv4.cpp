#include "tutti/object/sigv4.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/object/digest.h"
#include "tutti/object/uri.h"

namespace tutti::object {
namespace {

std::map<std::string, std::string> headers_to_sign(const Request& request) {
  std::map<std::string, std::string> headers = request.headers;
  headers["host"] = request.host;
  return headers;
}

}  // namespace

std::string encoded_path(const Request& request) { return percent_encode(request.path, false); }

std::string encoded_query(const Request& request) {
  std::vector<std::pair<std::string, std::string>> encoded;
  for (const auto& [name, value] : request.query) {
    encoded.emplace_back(percent_encode(name), percent_encode(value));
  }
  std::sort(encoded.begin(), encoded.end());
  std::string out;
  for (const auto& [name, value] : encoded) {
    out += fmt::format("{}{}={}", out.empty() ? "" : "&", name, value);
  }
  return out;
}

std::string signed_header_names(const Request& request) {
  std::vector<std::string> names;
  for (const auto& [name, value] : headers_to_sign(request)) names.push_back(name);
  return join(names, ";");
}

std::string canonical_request(const Request& request, const std::string& payload_sha256) {
  std::string headers;
  for (const auto& [name, value] : headers_to_sign(request)) {
    headers += fmt::format("{}:{}\n", name, trim(value));
  }
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, encoded_path(request),
                     encoded_query(request), headers, signed_header_names(request), payload_sha256);
}

void sign(Request& request, const Signing& signing) {
  const Credentials& who = signing.credentials;
  request.headers["x-amz-date"] = signing.time;
  if (signing.service == "s3") request.headers["x-amz-content-sha256"] = signing.payload_sha256;
  if (!who.session_token.empty()) request.headers["x-amz-security-token"] = who.session_token;
  const std::string date = signing.time.substr(0, 8);
  const std::string scope =
      fmt::format("{}/{}/{}/aws4_request", date, signing.region, signing.service);
  const std::string to_sign =
      fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", signing.time, scope,
                  to_hex(sha256(canonical_request(request, signing.payload_sha256))));
  std::string key = hmac_sha256("AWS4" + who.secret_key, date);
  for (const std::string_view part :
       {std::string_view(signing.region), std::string_view(signing.service),
        std::string_view("aws4_request")}) {
    key = hmac_sha256(key, part);
  }
  const std::string names = signed_header_names(request);
  request.headers["authorization"] =
      fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                  who.access_key, scope, names, to_hex(hmac_sha256(key, to_sign)));
}

}  // namespace tutti::object
