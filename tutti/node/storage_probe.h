// Measurements of one storage, a folder of a disk or a prefix of an object store: requests of one
// kind, timed one by one, from one thread or several. What a storage is asked for is here; how the
// figures belong together is train/tasks/storage_bench.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/direct_file.h"
#include "tutti/base/file.h"
#include "tutti/base/object_store.h"

namespace tutti::node {

inline constexpr int64_t kStreamBytes = int64_t{4} << 20;  // of one request of a whole file

// Called between requests, from any thread; what it throws ends the measurement.
using CheckStop = std::function<void()>;

struct RequestLimits {
  int threads = 1;
  double seconds = 1;  // no further request begins then; the first one of each thread always does
  int64_t most = INT64_MAX;  // requests in all
};

struct TimedRequests {
  std::vector<double> seconds;  // of each request
  double elapsed_seconds = 0;

  double per_second() const;
  double latency_seconds(double at) const;  // quantile
};

// Calls body(thread, index) for index = 0, 1, ... until a limit is reached. The first exception of
// any thread is thrown again when all have ended.
TimedRequests time_requests(const RequestLimits& limits, const CheckStop& check,
                            const std::function<void(int thread, int64_t index)>& body);

// 4 MiB that a file system or store that compresses gains nothing from.
const std::vector<uint32_t>& incompressible_chunk();

// Writes a file of that size, until it is durable; returns seconds.
double write_whole(FileSystem& files, const std::string& path, int64_t bytes,
                   const CheckStop& check);
// Reads it from front to back as the program does, through FileSystem::map(); returns seconds.
double read_whole(FileSystem& files, const std::string& path, const CheckStop& check);

// A file whose next reads come from the storage itself, and where they come from.
struct ColdFile {
  std::unique_ptr<RangedFile> file;
  ReadSource source = ReadSource::device;
};
// Objects by ranges; files of the machine by DirectFile. `around_cache` false, for file systems
// that are not the machine's: through map().
ColdFile open_cold(FileSystem& files, const std::string& path, bool around_cache);

// Reads of `bytes` each at random multiples of it. `seed` makes the order.
TimedRequests read_randomly(const RangedFile& file, int64_t bytes, const RequestLimits& limits,
                            uint64_t seed, const CheckStop& check);
// The whole file once in requests of kStreamBytes, `limits.threads` at a time: one after the other
// (a deep queue), or, with `apart`, of as many parts as threads, each from front to back (many
// readers).
TimedRequests read_deeply(const RangedFile& file, RequestLimits limits, bool apart,
                          const CheckStop& check);
// Overwrites the file likewise, until it is durable.
TimedRequests overwrite_deeply(const DirectFile& file, RequestLimits limits,
                               const CheckStop& check);

}  // namespace tutti::node
