#include "tutti/object/testing/fake_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/text.h"
#include "tutti/object/digest.h"
#include "tutti/object/sigv4.h"
#include "tutti/object/uri.h"

namespace tutti::object {
namespace {

Response failed_with(int status, const std::string& code) {
  Response response;
  response.status = status;
  response.headers["date"] = "Thu, 01 Jan 2026 00:00:00 GMT";
  response.body = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{}</Code><Message>of {}</Message>"
      "</Error>",
      code, code);
  return response;
}

std::map<std::string, std::string> query_of(const Request& request) {
  return {request.query.begin(), request.query.end()};
}

bool has(const std::map<std::string, std::string>& map, const char* key) {
  return map.count(key) > 0;
}

// The request, signed again with the secret that the store knows.
bool is_signed(const Request& request) {
  Request again = request;
  again.headers.erase("authorization");
  const std::string sum = to_hex(sha256(request.body));
  if (!has(request.headers, "x-amz-date") || !has(request.headers, "authorization")) return false;
  sign(again, {{FakeStore::kAccessKey, FakeStore::kSecretKey, ""},
               "us-east-1",
               "s3",
               request.headers.at("x-amz-date"),
               sum});
  return again.headers.at("authorization") == request.headers.at("authorization");
}

}  // namespace

Response FakeStore::send(const Request& request) {
  const std::lock_guard lock(mutex_);
  const int64_t index = requests_++;
  log_.push_back(
      fmt::format("{} {}?{}", request.method, request.path.substr(1), encoded_query(request)));
  const bool fails = fault_at_ >= 0 && (index == fault_at_ || (lasting_ && index > fault_at_));
  if (fails && failure_ == Failure::refused) throw TransportError("connection reset", true);
  if (fails && failure_ == Failure::unavailable) return failed_with(503, "SlowDown");
  Response response = fixed_ ? *fixed_ : answer(request);
  if (fails) throw TransportError("the answer was cut short", true);
  if (request.into != nullptr && response.status / 100 == 2) {
    TUTTI_CHECK(response.body.size() <= request.into_size, "{} bytes into {}", response.body.size(),
                request.into_size);
    std::memcpy(request.into, response.body.data(), response.body.size());
    response.into_size = response.body.size();
    response.body.clear();
  }
  if (request.method == "HEAD") response.body.clear();
  return response;
}

Response FakeStore::answer(const Request& request) {
  if (!is_signed(request)) return failed_with(403, "SignatureDoesNotMatch");
  const std::string path = request.path.substr(1);
  const size_t slash = path.find('/');
  const std::string bucket = path.substr(0, slash);
  const bool of_bucket = slash == std::string::npos || slash + 1 == path.size();
  if (buckets_.count(bucket) == 0) return failed_with(404, "NoSuchBucket");
  const auto query = query_of(request);
  if (of_bucket) return list(bucket, query);
  if (request.method == "GET" || request.method == "HEAD") return get(request, path);
  if (request.method == "PUT") return put(request, path);
  Response response;
  response.status = 204;
  if (request.method == "DELETE") {
    if (!has(query, "uploadId")) {
      objects_.erase(path);
    } else if (uploads_.erase(query.at("uploadId")) == 0) {
      return failed_with(404, "NoSuchUpload");
    }
    return response;
  }
  if (request.method != "POST") return failed_with(405, "MethodNotAllowed");
  if (has(query, "uploadId")) return complete(request, query.at("uploadId"));
  const std::string id = fmt::format("upload-{}", next_upload_++);
  uploads_[id].path = path;
  response.status = 200;
  response.body = fmt::format(
      "<InitiateMultipartUploadResult><Key>x</Key><UploadId>{}</UploadId>"
      "</InitiateMultipartUploadResult>",
      id);
  return response;
}

Response FakeStore::put(const Request& request, const std::string& path) {
  const auto query = query_of(request);
  const std::string sum = to_base64(sha256(request.body));
  const auto claimed = request.headers.find("x-amz-checksum-sha256");
  if (claimed == request.headers.end() || claimed->second != sum) {
    return failed_with(400, "BadDigest");
  }
  int64_t stored = static_cast<int64_t>(request.body.size());
  for (const auto& [key, object] : objects_) stored += static_cast<int64_t>(object.bytes.size());
  for (const auto& [id, pending] : uploads_) {
    for (const auto& [number, part] : pending.parts) {
      stored += static_cast<int64_t>(part.bytes.size());
    }
  }
  if (stored > capacity_bytes_) return failed_with(403, "QuotaExceeded");
  const Object object = {std::string(request.body), "\"" + to_hex(md5(request.body)) + "\"", sum};
  Response response;
  response.status = 200;
  response.headers["etag"] = object.etag;
  response.headers["x-amz-checksum-sha256"] = sum;
  if (has(query, "uploadId")) {
    const auto upload = uploads_.find(query.at("uploadId"));
    if (upload == uploads_.end()) return failed_with(404, "NoSuchUpload");
    upload->second.parts[std::stoi(query.at("partNumber"))] = object;
    return response;
  }
  const auto there = objects_.find(path);
  const auto absent = request.headers.find("if-none-match");
  const auto match = request.headers.find("if-match");
  if (ignores_conditions_) {
    objects_[path] = object;
    return response;
  }
  if (absent != request.headers.end() && there != objects_.end()) {
    return failed_with(412, "PreconditionFailed");
  }
  if (match != request.headers.end() &&
      (there == objects_.end() || there->second.etag != match->second)) {
    return failed_with(412, "PreconditionFailed");
  }
  objects_[path] = object;
  return response;
}

Response FakeStore::get(const Request& request, const std::string& path) {
  const auto found = objects_.find(path);
  if (found == objects_.end()) return failed_with(404, "NoSuchKey");
  const Object& object = found->second;
  Response response;
  response.status = 200;
  response.headers["etag"] = object.etag;
  response.headers["content-length"] = std::to_string(object.bytes.size());
  response.headers["x-amz-checksum-sha256"] = object.sha256;
  if (request.headers.count("if-match") > 0 && request.headers.at("if-match") != object.etag) {
    return failed_with(412, "PreconditionFailed");
  }
  if (request.method == "HEAD") return response;
  if (const auto range = request.headers.find("range"); range != request.headers.end()) {
    long long first = 0;
    long long last = 0;
    TUTTI_CHECK(std::sscanf(range->second.c_str(), "bytes=%lld-%lld", &first, &last) == 2,
                "range '{}'", range->second);
    response.status = 206;
    response.body =
        object.bytes.substr(static_cast<size_t>(first), static_cast<size_t>(last - first + 1));
    response.headers.erase("x-amz-checksum-sha256");
  } else {
    response.body = object.bytes;
  }
  bytes_read_ += static_cast<int64_t>(response.body.size());
  return response;
}

// Of objects, or of uploads.
Response FakeStore::list(const std::string& bucket,
                         const std::map<std::string, std::string>& query) const {
  Response response;
  response.status = 200;
  const std::string prefix = has(query, "prefix") ? query.at("prefix") : "";
  const auto key_of = [&](const std::string& path) { return path.substr(bucket.size() + 1); };
  if (has(query, "uploads")) {
    response.body = "<ListMultipartUploadsResult><EncodingType>url</EncodingType>";
    for (const auto& [id, upload] : uploads_) {
      if (!prefix.empty() && key_of(upload.path) != prefix) continue;
      response.body += fmt::format("<Upload><Key>{}</Key><UploadId>{}</UploadId></Upload>",
                                   percent_encode(key_of(upload.path)), id);
    }
    response.body += "</ListMultipartUploadsResult>";
    return response;
  }
  const std::string after = has(query, "continuation-token") ? query.at("continuation-token") : "";
  const int64_t most = std::min(page_, static_cast<int64_t>(std::stoll(query.at("max-keys"))));
  std::string body;
  std::string last;
  int64_t count = 0;
  bool truncated = false;
  for (const auto& [path, object] : objects_) {
    if (!starts_with(path, bucket + "/")) continue;
    const std::string key = key_of(path);
    if (!starts_with(key, prefix)) continue;
    const size_t slash = has(query, "delimiter") ? key.find('/', prefix.size()) : std::string::npos;
    const std::string shown = slash == std::string::npos ? key : key.substr(0, slash + 1);
    if (shown <= after || shown == last) continue;
    if (count == most) {
      truncated = true;
      break;
    }
    ++count;
    last = shown;
    body += slash == std::string::npos
                ? fmt::format("<Contents><Key>{}</Key><Size>{}</Size></Contents>",
                              percent_encode(key), object.bytes.size())
                : fmt::format("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>",
                              percent_encode(shown));
  }
  response.body = fmt::format(
      "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{}</IsTruncated>{}{}"
      "</ListBucketResult>",
      truncated,
      truncated ? fmt::format("<NextContinuationToken>{}</NextContinuationToken>", last) : "",
      body);
  return response;
}

Response FakeStore::complete(const Request& request, const std::string& id) {
  const auto upload = uploads_.find(id);
  if (upload == uploads_.end()) return failed_with(404, "NoSuchUpload");
  Object object;
  std::string sums;
  size_t named = 0;
  for (const auto& [number, part] : upload->second.parts) {
    const std::string text = fmt::format("<PartNumber>{}</PartNumber><ETag>&quot;{}&quot;</ETag>",
                                         number, part.etag.substr(1, 32));
    if (request.body.find(text) == std::string_view::npos) continue;
    ++named;
    object.bytes += part.bytes;
    sums += from_hex(part.etag.substr(1, 32));
  }
  if (named == 0 || named != upload->second.parts.size()) return failed_with(400, "InvalidPart");
  object.etag = fmt::format("\"{}-{}\"", to_hex(md5(sums)), named);
  object.sha256 = "of-parts-" + std::to_string(named);
  objects_[upload->second.path] = object;
  uploads_.erase(upload);
  Response response;
  response.status = 200;
  response.body = fmt::format(
      "<CompleteMultipartUploadResult><ETag>&quot;{}&quot;</ETag>"
      "</CompleteMultipartUploadResult>",
      object.etag.substr(1, object.etag.size() - 2));
  return response;
}

void FakeStore::fail_request(int64_t index, Failure failure, bool lasting) {
  const std::lock_guard lock(mutex_);
  requests_ = 0;
  log_.clear();
  fault_at_ = index;
  failure_ = failure;
  lasting_ = lasting;
}

void FakeStore::clear_faults() { fail_request(-1, Failure::refused, false); }

int64_t FakeStore::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<std::string> FakeStore::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

int64_t FakeStore::open_uploads() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(uploads_.size());
}

std::map<std::string, std::string> FakeStore::objects() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> out;
  for (const auto& [path, object] : objects_) out[path] = object.bytes;
  return out;
}

void FakeStore::set_object(const std::string& path, const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  objects_[path] = {bytes, "\"" + to_hex(md5(bytes)) + "\"", to_base64(sha256(bytes))};
}

void FakeStore::set_capacity(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_bytes_ = bytes;
}

Environment fake_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    static const std::map<std::string, std::string> kVariables = {
        {"AWS_ACCESS_KEY_ID", FakeStore::kAccessKey},
        {"AWS_SECRET_ACCESS_KEY", FakeStore::kSecretKey},
        {"AWS_ENDPOINT_URL_S3", "http://store.test"},
        {"XDG_CACHE_HOME", "/tmp"}};
    const auto found = kVariables.find(name);
    if (found == kVariables.end()) return std::nullopt;
    return found->second;
  };
}

Settings fake_settings() { return find_settings(posix_file_system(), fake_environment()); }

RetryOptions without_waiting(int attempts) {
  RetryOptions retry;
  retry.attempts = attempts;
  retry.sleep = [](double) {};
  return retry;
}

std::unique_ptr<RoutedFileSystem> files_over(const std::shared_ptr<Transport>& store,
                                             FileSystem& local, int attempts,
                                             const WriteLimits& write) {
  StoreOptions options;
  options.transport = store;
  options.retry = without_waiting(attempts);
  options.write = write;
  options.environment = fake_environment();
  return std::make_unique<RoutedFileSystem>(local, std::move(options));
}

}  // namespace tutti::object
