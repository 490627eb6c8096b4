#include "tutti/object/client.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/object/client_call.h"
#include "tutti/object/digest.h"
#include "tutti/object/sigv4.h"

namespace tutti::object {
namespace {

// An answer after which the request has certainly not taken effect. What fails inside a store, or
// between a gateway and the store, may have.
bool is_refusal(int status) {
  return (status >= 300 && status < 500) || status == 501 || status == 507;
}

std::string signing_time() {
  std::string time = format_utc(wall_seconds());  // 2026-01-31T12:00:00Z
  time.erase(std::remove_if(time.begin(), time.end(), [](char c) { return c == '-' || c == ':'; }),
             time.end());
  return time;
}

}  // namespace

Client::Client(Settings settings, std::shared_ptr<Transport> transport, RetryOptions retry)
    : settings_(std::move(settings)), transport_(std::move(transport)), retry_(std::move(retry)) {}

std::string Client::endpoint() const {
  if (!settings_.endpoint.empty()) return settings_.endpoint;
  return fmt::format("https://s3.{}.amazonaws.com", settings_.region);
}

std::string Client::region_of(const std::string& bucket) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(bucket);
  return found == regions_.end() ? settings_.region : found->second;
}

// A bucket may be in another region than the one that was asked; its answer says which.
bool Client::learn_region(const std::string& bucket, const Response& response) const {
  const std::string region = response.header("x-amz-bucket-region");
  if (region.empty() || region == region_of(bucket)) return false;
  const std::lock_guard lock(mutex_);
  regions_[bucket] = region;
  return true;
}

Request Client::make_request(const Call& call) const {
  Request request;
  const std::string region = region_of(call.uri.bucket);
  std::string url = settings_.endpoint;
  if (url.empty()) url = fmt::format("https://s3.{}.amazonaws.com", region);
  const size_t colon = url.find("://");
  request.scheme = url.substr(0, colon);
  request.host = url.substr(colon + 3);
  if (const size_t slash = request.host.find('/'); slash != std::string::npos) {
    request.path = request.host.substr(slash);  // of a gateway that serves S3 below a path
    request.host.resize(slash);
  }
  // A name with dots is not covered by a certificate for *.s3.amazonaws.com.
  const bool in_host =
      settings_.addressing == Addressing::host ||
      (settings_.addressing == Addressing::automatic && settings_.endpoint.empty() &&
       call.uri.bucket.find('.') == std::string::npos);
  if (in_host) {
    request.host = call.uri.bucket + "." + request.host;
  } else {
    request.path += "/" + call.uri.bucket;
  }
  request.path += "/" + call.uri.key;
  if (call.uri.key.empty() && !in_host) request.path.pop_back();
  request.method = call.method;
  request.query = call.query;
  request.headers = call.headers;
  request.body = call.body;
  request.into = call.into;
  request.into_size = call.into_size;
  const std::string digest = sha256(call.body);
  // Of what is stored, so that the store compares it before it keeps the bytes, and keeps it.
  if (call.method == "PUT") request.headers["x-amz-checksum-sha256"] = to_base64(digest);
  sign(request, {settings_.credentials, region, "s3", signing_time(), to_hex(digest)});
  return request;
}

void Client::wait(int attempt) const {
  const double seconds = backoff_seconds(retry_, attempt);
  retry_.sleep ? retry_.sleep(seconds) : sleep_seconds(seconds);
}

Client::Outcome Client::run(const Call& call) const {
  bool moved = false;
  bool is_certain = true;
  for (int attempt = 1;; ++attempt) {
    const bool last = attempt >= retry_.attempts;
    Outcome outcome;
    outcome.attempts = attempt;
    outcome.is_certain = is_certain;
    try {
      outcome.response = transport_->send(make_request(call));
    } catch (const TransportError& error) {
      if (last || !error.may_pass()) {
        fail(ErrorKind::io, "cannot {} {}: {} ({}{})", call.what, call.target(), error.what(),
             endpoint(), attempt > 1 ? fmt::format(", {} attempts", attempt) : "");
      }
      is_certain = false;
      wait(attempt);
      continue;
    }
    if (is_success(outcome.response.status)) return outcome;
    outcome.error = parse_error(outcome.response.body);
    if (!moved && learn_region(call.uri.bucket, outcome.response)) {
      moved = true;  // once: the next answer is final
      continue;
    }
    if (last || !is_passing(outcome.response.status, outcome.error.code)) return outcome;
    is_certain = is_certain && is_refusal(outcome.response.status);
    wait(attempt);
  }
}

Client::Outcome Client::expect(const Call& call) const {
  Outcome outcome = run(call);
  if (!is_success(outcome.response.status)) fail_call(call, outcome);
  return outcome;
}

void Client::fail_call(const Call& call, const Outcome& outcome) const {
  const int status = outcome.response.status;
  const std::string& code = outcome.error.code;
  const std::string target = call.target();
  if (code == "RequestTimeTooSkewed") {
    const std::string theirs = outcome.error.server_time.empty() ? outcome.response.header("date")
                                                                 : outcome.error.server_time;
    fail(ErrorKind::usage,
         "cannot {} {}: the clocks differ too much: here it is {}, at {} it is {}; set this "
         "machine's clock (timedatectl set-ntp true)",
         call.what, target, format_utc(wall_seconds()), endpoint(), printable(theirs));
  }
  if (code == "NoSuchBucket") {
    fail(ErrorKind::not_found,
         "cannot {} {}: there is no bucket '{}' at {}; create it, or point AWS_ENDPOINT_URL_S3 to "
         "the store that has it",
         call.what, target, call.uri.bucket, endpoint());
  }
  if (code == "InvalidAccessKeyId" || code == "SignatureDoesNotMatch" || code == "ExpiredToken" ||
      code == "InvalidToken") {
    fail(ErrorKind::permission,
         "cannot {} {}: {} does not accept the credentials ({}); check AWS_ACCESS_KEY_ID and "
         "AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or the profile in ~/.aws/credentials",
         call.what, target, endpoint(), code);
  }
  if (status == 507 || code == "QuotaExceeded" || code == "XMinioStorageFull" ||
      code == "InsufficientCapacity" || code == "XMinioAdminBucketQuotaExceeded") {
    fail(ErrorKind::no_space,
         "cannot {} {}: the store at {} is full ({}); remove objects or raise "
         "the quota",
         call.what, target, endpoint(), code.empty() ? "507" : printable(code));
  }
  if (status == 401 || status == 403) {
    fail(ErrorKind::permission,
         "cannot {} {}: {} says no ({}{}); the credentials {} lack the right", call.what, target,
         endpoint(), status, code.empty() ? "" : ", " + printable(code),
         settings_.credentials.access_key);
  }
  if (status == 404)
    fail(ErrorKind::not_found, "cannot {} {}: it does not exist", call.what, target);
  if (status == 412) {
    fail(ErrorKind::peer, "cannot {} {}: another process has written it meanwhile", call.what,
         target);
  }
  if (status == 501) {
    fail(ErrorKind::unsupported, "cannot {} {}: {} does not implement what this needs ({})",
         call.what, target, endpoint(), printable(outcome.error.message));
  }
  fail(ErrorKind::io, "cannot {} {}: {} answers {}{}{}", call.what, target, endpoint(), status,
       code.empty() ? ""
                    : fmt::format(", {}: {}", printable(code), printable(outcome.error.message)),
       outcome.attempts > 1 ? fmt::format(" ({} attempts)", outcome.attempts) : "");
}

std::optional<ObjectFacts> Client::head(const Uri& uri) const {
  const Call call = {"look at", "HEAD", uri};
  Outcome outcome = run(call);
  // The answer to HEAD has no body: a missing bucket looks like a missing object.
  if (outcome.response.status == 404) return std::nullopt;
  if (const int status = outcome.response.status; !is_success(status)) {
    if (is_passing(status, "")) fail_call(call, outcome);
    // Nor does it say what is wrong with the credentials or the clock: that of GET does.
    const Call again = {"look at", "GET", uri, {}, {{"range", "bytes=0-0"}}};
    const Outcome why = run(again);
    fail_call(call, why.response.status == status ? why : outcome);
  }
  ObjectFacts facts;
  facts.etag = outcome.response.header("etag");
  const std::string size = outcome.response.header("content-length");
  if (size.empty() || size.size() > 18 ||
      size.find_first_not_of("0123456789") != std::string::npos) {
    fail(ErrorKind::corrupt, "{}: the store gives the size '{}'", call.target(), printable(size));
  }
  facts.size_bytes = std::stoll(size);
  return facts;
}

std::string Client::get(const Uri& uri) const {
  const Call call = {"read", "GET", uri, {}, {{"x-amz-checksum-mode", "ENABLED"}}};
  Outcome outcome = expect(call);
  const std::string sum = outcome.response.header("x-amz-checksum-sha256");
  // "-N" at the end: a checksum of the checksums of N parts.
  const bool of_whole = !sum.empty() && sum.find('-') == std::string::npos;
  if (of_whole && sum != to_base64(sha256(outcome.response.body))) {
    fail(ErrorKind::corrupt, "{}: its {} bytes do not have the SHA-256 that the store keeps of it",
         call.target(), outcome.response.body.size());
  }
  return std::move(outcome.response.body);
}

void Client::get_range(const Uri& uri, int64_t offset, int64_t size, const std::string& etag,
                       char* out) const {
  if (size == 0) return;
  Call call = {"read", "GET", uri};
  call.headers["range"] = fmt::format("bytes={}-{}", offset, offset + size - 1);
  if (!etag.empty()) call.headers["if-match"] = etag;
  call.into = out;
  call.into_size = static_cast<size_t>(size);
  for (int attempt = 1;; ++attempt) {
    Outcome outcome = run(call);
    if (outcome.response.status == 412) {
      fail(ErrorKind::corrupt, "{}: it was replaced while it was read", call.target());
    }
    if (!is_success(outcome.response.status)) fail_call(call, outcome);
    if (outcome.response.status == 206 && outcome.response.into_size == call.into_size) return;
    if (attempt == retry_.attempts || outcome.response.status != 206) {
      fail(ErrorKind::corrupt, "{}: {} bytes (status {}) instead of the {} from byte {} on",
           call.target(), outcome.response.into_size, outcome.response.status, size, offset);
    }
  }
}

void Client::put(const Uri& uri, std::string_view bytes, const Condition& condition,
                 bool* may_be_there) const {
  if (may_be_there != nullptr) *may_be_there = true;
  Call call = {"write", "PUT", uri, {}, {}, bytes};
  if (condition.if_absent) call.headers["if-none-match"] = "*";
  if (!condition.if_etag.empty()) call.headers["if-match"] = condition.if_etag;
  Outcome outcome = run(call);
  if (is_success(outcome.response.status)) return;
  // The answer to an earlier attempt may have been lost after it took effect.
  const int status = outcome.response.status;
  if (status == 412 && outcome.attempts > 1 && get(uri) == bytes) return;
  const bool refused = status == 412 || (outcome.is_certain && is_refusal(status));
  if (may_be_there != nullptr) *may_be_there = !refused;
  if (status == 404 && outcome.error.code == "NoSuchKey") {  // instead of 412 to If-Match
    fail(ErrorKind::peer, "cannot write {}: another process has removed it", call.target());
  }
  fail_call(call, outcome);
}

void Client::remove(const Uri& uri) const {
  const Call call = {"remove", "DELETE", uri};
  const Outcome outcome = run(call);
  const bool absent = outcome.response.status == 404 && outcome.error.code != "NoSuchBucket";
  if (!is_success(outcome.response.status) && !absent) fail_call(call, outcome);
}

ListPage Client::list_page(const std::string& bucket, const std::string& prefix, bool one_folder,
                           const std::string& continue_at, int64_t most_keys) const {
  Call call = {"list", "GET", {bucket, ""}};
  call.query = {{"list-type", "2"},
                {"prefix", prefix},
                {"encoding-type", "url"},
                {"max-keys", std::to_string(most_keys)}};
  if (one_folder) call.query.emplace_back("delimiter", "/");
  if (!continue_at.empty()) call.query.emplace_back("continuation-token", continue_at);
  const Outcome outcome = expect(call);
  return parse_list(outcome.response.body, fmt::format("list {}/{}", call.target(), prefix));
}

ListPage Client::list(const std::string& bucket, const std::string& prefix, bool one_folder) const {
  ListPage all;
  std::string next;
  do {
    ListPage page = list_page(bucket, prefix, one_folder, next);
    all.objects.insert(all.objects.end(), page.objects.begin(), page.objects.end());
    all.prefixes.insert(all.prefixes.end(), page.prefixes.begin(), page.prefixes.end());
    if (page.next == next && !next.empty()) {
      fail(ErrorKind::corrupt, "list s3://{}/{}: a page names itself as the next", bucket, prefix);
    }
    next = page.next;
  } while (!next.empty());
  return all;
}

}  // namespace tutti::object
