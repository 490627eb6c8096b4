// S3's operations on objects, each one call: signed, sent, tried again, each kind of failure an
// Error of its own.
//
// Throws Error, naming s3://BUCKET/KEY: not_found (no such object or bucket), permission (wrong
// credentials, no right), no_space (the store is full), usage (clock skew, bad settings), corrupt
// (an answer that cannot be read, bytes that do not have their checksum), peer (a condition does
// not hold), io (everything else, after all attempts). No message holds a secret. Thread-safe.
//
// Every upload carries SHA-256 of its bytes, in the signature and as x-amz-checksum-sha256, which
// the store compares and keeps; a whole object that is read is compared with it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/object/credentials.h"
#include "tutti/object/retry.h"
#include "tutti/object/transport.h"
#include "tutti/object/uri.h"
#include "tutti/object/xml.h"

namespace tutti::object {

struct ObjectFacts {
  int64_t size_bytes = 0;
  std::string etag;
};

// On the object that is there when a write takes effect.
struct Condition {
  bool if_absent = false;  // If-None-Match: *
  std::string if_etag;     // If-Match; empty: none
};

class Client {
 public:
  Client(Settings settings, std::shared_ptr<Transport> transport, RetryOptions retry = {});

  std::optional<ObjectFacts> head(const Uri& uri) const;  // nullopt: no such object
  std::string get(const Uri& uri) const;                  // whole
  // out = bytes [offset, offset + size); `etag`, when not empty, must be the object's.
  void get_range(const Uri& uri, int64_t offset, int64_t size, const std::string& etag,
                 char* out) const;
  // `may_be_there`, unless null: whether the object may hold the bytes, also after an error; false
  // when every attempt was answered, by a refusal.
  void put(const Uri& uri, std::string_view bytes, const Condition& condition = {},
           bool* may_be_there = nullptr) const;
  void remove(const Uri& uri) const;  // no error when absent

  // One page of the keys that begin with `prefix`; with a delimiter those of one folder.
  ListPage list_page(const std::string& bucket, const std::string& prefix, bool one_folder,
                     const std::string& continue_at, int64_t most_keys = 1000) const;
  ListPage list(const std::string& bucket, const std::string& prefix, bool one_folder) const;

  std::string begin_upload(const Uri& uri) const;  // its id
  UploadPart upload_part(const Uri& uri, const std::string& id, int number,
                         std::string_view bytes) const;
  // `size_bytes` of the whole: what a completion whose answer was lost is recognized by.
  void complete_upload(const Uri& uri, const std::string& id, const std::vector<UploadPart>& parts,
                       int64_t size_bytes) const;
  void abort_upload(const Uri& uri, const std::string& id) const;  // no error when absent
  std::vector<Upload> list_uploads(const std::string& bucket, const std::string& prefix) const;

  std::string endpoint() const;  // for messages

 private:
  struct Call;
  struct Outcome {
    Response response;
    StoreError error;  // when the status is not 2xx
    int attempts = 1;
    bool is_certain = true;  // no attempt before the last may have taken effect
  };
  Outcome run(const Call& call) const;
  Outcome expect(const Call& call) const;  // throws for what is not 2xx
  Request make_request(const Call& call) const;
  [[noreturn]] void fail_call(const Call& call, const Outcome& outcome) const;
  std::string region_of(const std::string& bucket) const;
  void wait(int attempt) const;
  bool learn_region(const std::string& bucket, const Response& response) const;

  const Settings settings_;
  const std::shared_ptr<Transport> transport_;
  const RetryOptions retry_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::string> regions_;  // of buckets that are elsewhere
};

}  // namespace tutti::object
