// What S3 answers, read from XML by pugixml. The bytes come over a network: what is not
// well-formed, has another root, or lacks what is needed is an Error (corrupt) naming the request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::object {

struct ListedObject {
  std::string key;
  int64_t size_bytes = 0;
};

struct ListPage {
  std::vector<ListedObject> objects;
  std::vector<std::string> prefixes;  // common ones, each ends in the delimiter
  std::string next;                   // continuation token; empty: this was the last page
};

struct Upload {
  std::string key;
  std::string id;
};

struct UploadPage {
  std::vector<Upload> uploads;
  std::string next_key, next_id;  // markers; both empty: this was the last page
};

struct UploadPart {
  int number = 0;
  std::string etag;
  std::string sha256;  // base64; empty: the store gave none
};

struct StoreError {
  std::string code;
  std::string message;
  std::string server_time;  // of RequestTimeTooSkewed
};

// `what` names the request in messages, such as "list s3://bucket/prefix".
ListPage parse_list(std::string_view xml, std::string_view what);
UploadPage parse_uploads(std::string_view xml, std::string_view what);
std::string parse_upload_id(std::string_view xml, std::string_view what);
// The ETag of a completed upload; a store may answer 200 and then report an error: `error` has a
// code then.
std::string parse_completed(std::string_view xml, std::string_view what, StoreError& error);
// An error's body. Empty members where it is not one: proxies answer in HTML.
StoreError parse_error(std::string_view xml);

std::string completion_xml(const std::vector<UploadPart>& parts);

}  // namespace tutti::object
