// Client's uploads in parts.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/object/client.h"
#include "tutti/object/client_call.h"
#include "tutti/object/digest.h"

namespace tutti::object {
namespace {

std::string unquoted(const std::string& etag) {
  return etag.size() >= 2 && etag.front() == '"' ? etag.substr(1, etag.size() - 2) : etag;
}

}  // namespace

std::string Client::begin_upload(const Uri& uri) const {
  Call call = {"write", "POST", uri, {{"uploads", ""}}};
  call.headers["x-amz-checksum-algorithm"] = "SHA256";
  const Outcome outcome = expect(call);
  return parse_upload_id(outcome.response.body, "begin upload of " + call.target());
}

UploadPart Client::upload_part(const Uri& uri, const std::string& id, int number,
                               std::string_view bytes) const {
  Call call = {"write", "PUT", uri, {{"partNumber", std::to_string(number)}, {"uploadId", id}}};
  call.body = bytes;
  const Outcome outcome = expect(call);
  const std::string etag = outcome.response.header("etag");
  if (etag.empty()) {
    fail(ErrorKind::corrupt, "{}: the store gave no ETag for part {}", call.target(), number);
  }
  return {number, etag, outcome.response.header("x-amz-checksum-sha256")};
}

void Client::complete_upload(const Uri& uri, const std::string& id,
                             const std::vector<UploadPart>& parts, int64_t size_bytes) const {
  const std::string body = completion_xml(parts);
  Call call = {"write", "POST", uri, {{"uploadId", id}}, {{"content-type", "application/xml"}},
               body};
  // What the store calls an object of these parts, where its ETags are MD5 sums.
  std::string sums;
  for (const UploadPart& part : parts) sums += from_hex(unquoted(part.etag));
  const std::string expected = fmt::format("{}-{}", to_hex(md5(sums)), parts.size());
  for (int attempt = 1;; ++attempt) {
    const Outcome outcome = run(call);
    if (is_success(outcome.response.status)) {
      StoreError error;
      parse_completed(outcome.response.body, "complete " + call.target(), error);
      if (error.code.empty()) return;
      if (attempt < retry_.attempts) {
        wait(attempt);
        continue;
      }
      fail(ErrorKind::io, "cannot write {}: {} answers {}: {}", call.target(), endpoint(),
           printable(error.code), printable(error.message));
    }
    // Completed by an attempt whose answer was lost.
    const bool again = outcome.attempts > 1 || attempt > 1;
    if (again && outcome.response.status == 404 && outcome.error.code != "NoSuchBucket") {
      const std::optional<ObjectFacts> there = head(uri);
      const bool same = there && there->size_bytes == size_bytes;
      const bool known = there && there->etag.find('-') != std::string::npos;
      if (same &&
          (!known || unquoted(there->etag) == expected || sums.size() != 16 * parts.size())) {
        return;
      }
    }
    fail_call(call, outcome);
  }
}

void Client::abort_upload(const Uri& uri, const std::string& id) const {
  const Call call = {"end the upload of", "DELETE", uri, {{"uploadId", id}}};
  const Outcome outcome = run(call);
  if (!is_success(outcome.response.status) && outcome.response.status != 404) {
    fail_call(call, outcome);
  }
}

std::vector<Upload> Client::list_uploads(const std::string& bucket,
                                         const std::string& prefix) const {
  std::vector<Upload> all;
  UploadPage page;
  do {
    Call call = {"list uploads of", "GET", {bucket, ""}};
    call.query = {{"uploads", ""}, {"encoding-type", "url"}};
    if (settings_.endpoint.empty()) call.query.emplace_back("prefix", prefix);
    if (!page.next_key.empty()) {
      call.query.emplace_back("key-marker", page.next_key);
      call.query.emplace_back("upload-id-marker", page.next_id);
    }
    const Outcome outcome = expect(call);
    page = parse_uploads(outcome.response.body, "list uploads of " + call.target());
    all.insert(all.end(), page.uploads.begin(), page.uploads.end());
  } while (!page.next_key.empty());
  // Outside AWS some stores ignore the prefix, and to MinIO it is the whole key.
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const Upload& upload) { return !starts_with(upload.key, prefix); }),
            all.end());
  return all;
}

}  // namespace tutti::object
