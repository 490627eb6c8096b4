// S3 in memory, as far as Tutti uses it, that can fail at any request. It checks every signature
// and every checksum, answers conditions and pages as AWS documents them, and is a Transport: no
// socket, so a failure at the n-th request, for all n, is an ordinary test. In a list of uploads a
// prefix is the whole key, as in MinIO.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tutti/object/file_system.h"

namespace tutti::object {

enum class Failure {
  refused,      // the network fails before the request arrives
  answer_lost,  // the request takes effect, its answer does not arrive
  unavailable,  // 503 SlowDown
};

class FakeStore final : public Transport {
 public:
  static constexpr const char* kAccessKey = "AKIDEXAMPLE";
  static constexpr const char* kSecretKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

  FakeStore() { buckets_.insert("bucket"); }

  Response send(const Request& request) override;

  // Request `index` from now on (0: the next) fails; lasting: so do all that follow.
  void fail_request(int64_t index, Failure failure, bool lasting);
  void clear_faults();
  int64_t requests() const;              // since the last fail_request() or clear_faults()
  std::vector<std::string> log() const;  // of these: "PUT bucket/key?query"
  int64_t open_uploads() const;
  std::map<std::string, std::string> objects() const;  // key -> bytes, of all buckets
  void set_object(const std::string& path, const std::string& bytes);  // "bucket/key"
  void set_capacity(int64_t bytes);  // of all objects; beyond it QuotaExceeded
  // Conditions are not looked at, as by stores that do not know them.
  void ignore_conditions() { ignores_conditions_ = true; }
  void set_page(int64_t keys) { page_ = keys; }
  // What the next requests are answered with instead.
  void answer_with(std::optional<Response> response) { fixed_ = std::move(response); }
  int64_t bytes_read() const { return bytes_read_; }  // by GET

 private:
  struct Object {
    std::string bytes, etag, sha256;
  };
  struct Pending {
    std::string path;
    std::map<int, Object> parts;
  };
  Response answer(const Request& request);
  Response put(const Request& request, const std::string& path);
  Response get(const Request& request, const std::string& path);
  Response list(const std::string& bucket, const std::map<std::string, std::string>& query) const;
  Response complete(const Request& request, const std::string& id);

  mutable std::mutex mutex_;
  std::set<std::string> buckets_;
  std::map<std::string, Object> objects_;  // by "bucket/key"
  std::map<std::string, Pending> uploads_;
  int64_t next_upload_ = 1;
  int64_t capacity_bytes_ = INT64_MAX;
  int64_t page_ = 1000;
  bool ignores_conditions_ = false;
  int64_t requests_ = 0;
  int64_t bytes_read_ = 0;
  std::vector<std::string> log_;
  std::optional<Response> fixed_;
  int64_t fault_at_ = -1;
  Failure failure_ = Failure::refused;
  bool lasting_ = false;
};

// Settings of the store above, and a file system over it: s3://bucket is there and empty. Nothing
// sleeps; `attempts` of each request.
Settings fake_settings();
Environment fake_environment();
RetryOptions without_waiting(int attempts);
std::unique_ptr<RoutedFileSystem> files_over(const std::shared_ptr<Transport>& store,
                                             FileSystem& local, int attempts,
                                             const WriteLimits& write = {});

}  // namespace tutti::object
