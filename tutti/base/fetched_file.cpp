#include "tutti/base/fetched_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "tutti/base/error.h"

namespace tutti {
namespace {

constexpr int64_t kRequestBytes = int64_t{8} << 20;
constexpr size_t kFetchThreads = 16;  // they wait for a network, not for a core

[[noreturn]] void fail_spool(const std::string& folder, const char* what, int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail(full ? ErrorKind::no_space : ErrorKind::io,
       "cannot {} what is read from an object store in '{}': {}{}", what, folder,
       std::strerror(error), full ? "; free some space, or set TUTTI_CACHE to another folder" : "");
}

}  // namespace

FetchedFile::FetchedFile(std::unique_ptr<RangedFile> object, const std::string& folder)
    : object_(std::move(object)),
      folder_(folder),
      size_(static_cast<size_t>(object_->size_bytes())) {
  posix_file_system().create_directories(folder);
  std::string name = join_path(folder, "object-XXXXXX");
  file_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) fail_spool(folder_, "keep", errno);
  ::unlink(name.c_str());
  int error = ::ftruncate(file_, static_cast<off_t>(size_)) != 0 ? errno : 0;
  if (error == 0 && size_ > 0) {
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_, 0);
    if (data_ == MAP_FAILED) error = errno;
  }
  if (error == 0) return;
  ::close(file_);
  fail_spool(folder_, "map", error);
}

FetchedFile::~FetchedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
  ::close(file_);
}

// Written by a call, not through the mapping: a full disk is an Error and not a signal.
void FetchedFile::fetch(int64_t offset, int64_t size) const {
  std::string part;
  for (int64_t at = offset; at < offset + size; at += kRequestBytes) {
    part.resize(static_cast<size_t>(std::min(kRequestBytes, offset + size - at)));
    object_->read(at, static_cast<int64_t>(part.size()), part.data());
    size_t done = 0;
    while (done < part.size()) {
      const ssize_t written = ::pwrite(file_, part.data() + done, part.size() - done,
                                       static_cast<off_t>(at) + static_cast<off_t>(done));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_spool(folder_, "keep", errno);
      done += static_cast<size_t>(written);
    }
  }
}

void FetchedFile::not_needed(size_t offset, size_t size) const {
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(size));
}

std::unique_ptr<MappedFile> map_on_demand(FileSystem& files, const std::string& path) {
  ObjectStore* store = object_store(files, path);
  if (store == nullptr) return files.map(path);
  return std::make_unique<FetchedFile>(store->open_ranged(path), store->spool_folder());
}

bool is_fetched(const MappedFile& file) {
  return dynamic_cast<const FetchedFile*>(&file) != nullptr;
}

void fetch(const std::vector<FetchRange>& ranges) {
  std::vector<FetchRange> requests;
  for (const FetchRange& range : ranges) {
    if (!is_fetched(*range.file)) continue;
    for (int64_t at = 0; at < range.size; at += kRequestBytes) {
      requests.push_back({range.file, range.offset + at, std::min(kRequestBytes, range.size - at)});
    }
  }
  if (requests.empty()) return;
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i = next++; i < requests.size(); i = next++) {
      const FetchRange& request = requests[i];
      try {
        dynamic_cast<const FetchedFile&>(*request.file).fetch(request.offset, request.size);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = requests.size();
      }
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(kFetchThreads, requests.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti
