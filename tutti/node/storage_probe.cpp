#include "tutti/node/storage_probe.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/quantile.h"
#include "tutti/base/rng.h"

namespace tutti::node {
namespace {

class MappedRanges final : public RangedFile {
 public:
  explicit MappedRanges(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}
  int64_t size_bytes() const override { return static_cast<int64_t>(file_->bytes().size()); }
  void read(int64_t offset, int64_t size, void* out) const override {
    std::memcpy(out, file_->bytes().data() + offset, static_cast<size_t>(size));
  }

 private:
  const std::unique_ptr<MappedFile> file_;
};

std::vector<AlignedBytes> buffers_for(int threads, int64_t bytes) {
  std::vector<AlignedBytes> buffers;
  buffers.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) buffers.push_back(make_aligned_bytes(bytes));
  return buffers;
}

int64_t requests_of(int64_t bytes) { return (bytes + kStreamBytes - 1) / kStreamBytes; }

int64_t request_bytes(int64_t index, int64_t size_bytes) {
  return std::min(kStreamBytes, size_bytes - index * kStreamBytes);
}

}  // namespace

double TimedRequests::per_second() const {
  return static_cast<double>(seconds.size()) / std::max(elapsed_seconds, 1e-9);
}

double TimedRequests::latency_seconds(double at) const { return quantile(seconds, at); }

TimedRequests time_requests(const RequestLimits& limits, const CheckStop& check,
                            const std::function<void(int thread, int64_t index)>& body) {
  TUTTI_CHECK(limits.threads > 0 && limits.most > 0, "{} threads, {} requests", limits.threads,
              limits.most);
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::exception_ptr failure;
  TimedRequests out;
  const double begin = monotonic_seconds();
  const double end = begin + limits.seconds;
  const auto work = [&](int thread) {
    std::vector<double> seconds;
    try {
      do {
        const int64_t index = next++;
        if (index >= limits.most || failed) break;
        if (check) check();
        const double start = monotonic_seconds();
        body(thread, index);
        seconds.push_back(monotonic_seconds() - start);
      } while (monotonic_seconds() < end);
    } catch (...) {
      failed = true;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    out.seconds.insert(out.seconds.end(), seconds.begin(), seconds.end());
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < limits.threads; ++i) threads.emplace_back(work, i);
  work(0);
  for (std::thread& thread : threads) thread.join();
  out.elapsed_seconds = monotonic_seconds() - begin;
  if (failure) std::rethrow_exception(failure);
  return out;
}

const std::vector<uint32_t>& incompressible_chunk() {
  static const std::vector<uint32_t> chunk = [] {
    std::vector<uint32_t> words(kStreamBytes / sizeof(uint32_t));
    for (size_t i = 0; i < words.size(); i += 4) {
      const auto four = philox(5, i);
      std::copy(four.begin(), four.end(), words.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return words;
  }();
  return chunk;
}

double write_whole(FileSystem& files, const std::string& path, int64_t bytes,
                   const CheckStop& check) {
  const std::vector<uint32_t>& chunk = incompressible_chunk();
  const double begin = monotonic_seconds();
  const auto file = files.create(path);
  for (int64_t at = 0; at < bytes; at += kStreamBytes) {
    if (check) check();
    file->append(chunk.data(), static_cast<size_t>(std::min(kStreamBytes, bytes - at)));
  }
  file->sync();
  file->close();
  return monotonic_seconds() - begin;
}

double read_whole(FileSystem& files, const std::string& path, const CheckStop& check) {
  const AlignedBytes buffer = make_aligned_bytes(kStreamBytes);
  const double begin = monotonic_seconds();
  const auto file = files.map(path);
  const std::string_view bytes = file->bytes();
  file->will_need(0, bytes.size());
  for (size_t at = 0; at < bytes.size(); at += kStreamBytes) {
    if (check) check();
    const size_t count = std::min<size_t>(kStreamBytes, bytes.size() - at);
    std::memcpy(buffer.get(), bytes.data() + at, count);
  }
  return monotonic_seconds() - begin;
}

ColdFile open_cold(FileSystem& files, const std::string& path, bool around_cache) {
  if (ObjectStore* store = object_store(files, path)) {
    return {store->open_ranged(path), ReadSource::device};
  }
  if (!around_cache) {
    return {std::make_unique<MappedRanges>(files.map(path)), ReadSource::memory};
  }
  auto file = std::make_unique<DirectFile>(path, DirectFile::Use::read);
  const ReadSource source = file->source();
  return {std::move(file), source};
}

TimedRequests read_randomly(const RangedFile& file, int64_t bytes, const RequestLimits& limits,
                            uint64_t seed, const CheckStop& check) {
  const int64_t pieces = file.size_bytes() / bytes;
  TUTTI_CHECK(pieces > 0, "reads of {} bytes in {}", bytes, file.size_bytes());
  const std::vector<AlignedBytes> buffers = buffers_for(limits.threads, bytes);
  return time_requests(limits, check, [&](int thread, int64_t index) {
    const uint64_t piece =
        random_u64(seed, static_cast<uint64_t>(index)) % static_cast<uint64_t>(pieces);
    file.read(static_cast<int64_t>(piece) * bytes, bytes,
              buffers[static_cast<size_t>(thread)].get());
  });
}

TimedRequests read_deeply(const RangedFile& file, RequestLimits limits, bool apart,
                          const CheckStop& check) {
  const int64_t requests = requests_of(file.size_bytes());
  limits.most = std::min(limits.most, requests);
  const std::vector<AlignedBytes> buffers = buffers_for(limits.threads, kStreamBytes);
  // Requests go round the parts: all are read from their fronts side by side, and none ends early.
  const int64_t parts = apart ? std::min<int64_t>(limits.threads, requests) : 1;
  return time_requests(limits, check, [&](int thread, int64_t index) {
    int64_t at = index;
    if (parts > 1) {
      const int64_t long_parts = requests % parts, part = index % parts;
      const int64_t begin = part * (requests / parts) + std::min(part, long_parts);
      at = begin + index / parts;
    }
    file.read(at * kStreamBytes, request_bytes(at, file.size_bytes()),
              buffers[static_cast<size_t>(thread)].get());
  });
}

TimedRequests overwrite_deeply(const DirectFile& file, RequestLimits limits,
                               const CheckStop& check) {
  limits.most = std::min(limits.most, requests_of(file.size_bytes()));
  const AlignedBytes chunk = make_aligned_bytes(kStreamBytes);
  std::memcpy(chunk.get(), incompressible_chunk().data(), kStreamBytes);
  const double begin = monotonic_seconds();
  TimedRequests out = time_requests(limits, check, [&](int, int64_t index) {
    file.write(index * kStreamBytes, request_bytes(index, file.size_bytes()), chunk.get());
  });
  file.sync();
  out.elapsed_seconds = monotonic_seconds() - begin;
  return out;
}

}  // namespace tutti::node
