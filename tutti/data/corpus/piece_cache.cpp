#include "tutti/data/corpus/piece_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "tutti/base/error.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::data {
namespace {

constexpr size_t kFetchThreads = 16;  // hide 50 ms each: 320 pieces a second
constexpr size_t kMostWanted = 4096;  // announced pieces; further announcements are dropped
constexpr int64_t kLeastPieces = 64;  // that fit, whatever the bound: those in flight

std::string file_name(const std::string& name, const CorpusChecksums& checksums) {
  return fmt::format("{}-{}", name, hash_hex(checksums.hash()));
}

}  // namespace

PieceCache::PieceCache(std::unique_ptr<RangedFile> object, const CorpusChecksums& checksums,
                       const CacheOptions& options, const std::string& name)
    : object_(std::move(object)),
      checksums_(checksums),
      bound_bytes_(std::max(kLeastPieces * kChecksumPieceBytes,
                            options.bytes > 0 ? options.bytes : spec::kDefaultCacheBytes)),
      file_(options.folder, file_name(name, checksums), object_->size_bytes()) {
  // What earlier sessions left counts as not used for longest.
  for (const PieceFile::Range& range : file_.kept()) {
    const int64_t first = range.begin / kChecksumPieceBytes;
    const int64_t last =
        std::min(checksums_.pieces(), (range.end + kChecksumPieceBytes - 1) / kChecksumPieceBytes);
    for (int64_t piece = first; piece < last; ++piece) {
      if (where_.count(piece) == 0) where_[piece] = by_use_.insert(by_use_.end(), piece);
    }
  }
  const int64_t excess = file_.usage().folder_bytes - bound_bytes_;  // of an earlier bound
  if (excess > 0) file_.take_unused(excess);
}

PieceCache::~PieceCache() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PieceCache::read(int64_t begin, int64_t end, char* out) {
  std::string bytes;
  for (int64_t at = begin; at < end;) {
    const int64_t piece = at / kChecksumPieceBytes;
    get(piece, bytes);
    const int64_t inside = at - piece * kChecksumPieceBytes;
    const int64_t count = std::min(end - at, static_cast<int64_t>(bytes.size()) - inside);
    std::memcpy(out, bytes.data() + inside, static_cast<size_t>(count));
    out += count;
    at += count;
  }
}

void PieceCache::get(int64_t piece, std::string& bytes) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return in_flight_.count(piece) == 0; });
  }
  if (get_local(piece, bytes)) return;
  {
    std::unique_lock lock(mutex_);
    if (in_flight_.count(piece) > 0) {
      lock.unlock();
      return get(piece, bytes);
    }
    in_flight_.insert(piece);
  }
  std::exception_ptr failure;
  try {
    // Another thread may have fetched it since the look above.
    if (!get_local(piece, bytes)) fetch_piece(piece, bytes);
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    in_flight_.erase(piece);
  }
  changed_.notify_all();
  if (failure) std::rethrow_exception(failure);
}

bool PieceCache::get_local(int64_t piece, std::string& bytes) {
  bytes.resize(static_cast<size_t>(checksums_.piece_bytes(piece)));
  const int64_t offset = piece * kChecksumPieceBytes;
  if (!file_.read(offset, static_cast<int64_t>(bytes.size()), bytes.data())) return false;
  if (!checksums_.holds(piece, bytes)) return false;
  used(piece);
  return true;
}

void PieceCache::fetch_piece(int64_t piece, std::string& bytes) {
  const int64_t offset = piece * kChecksumPieceBytes;
  const auto size = static_cast<int64_t>(bytes.size());
  object_->read(offset, size, bytes.data());
  {
    const std::lock_guard lock(mutex_);
    fetched_bytes_ += size;
  }
  if (!checksums_.holds(piece, bytes)) checksums_.fail_damaged(piece);
  // No space keeps no run from its data: what cannot be kept is fetched again.
  if (!make_space()) return;
  if (file_.write(offset, size, bytes.data())) {
    used(piece);
  } else {
    file_.drop(offset, size);
  }
}

void PieceCache::used(int64_t piece) {
  const std::lock_guard lock(mutex_);
  if (const auto found = where_.find(piece); found != where_.end()) {
    by_use_.splice(by_use_.end(), by_use_, found->second);
    return;
  }
  where_[piece] = by_use_.insert(by_use_.end(), piece);
}

// For one piece, before it is written. False: there is none.
bool PieceCache::make_space() {
  PieceFile::Usage usage = file_.usage();
  int64_t excess = usage.folder_bytes + kChecksumPieceBytes - bound_bytes_;
  if (excess > 0) excess -= file_.take_unused(excess);
  for (; excess > 0; excess -= kChecksumPieceBytes) {
    usage = file_.usage();
    const bool other_has_more = usage.largest_bytes > usage.own_bytes + kChecksumPieceBytes;
    if (other_has_more && PieceFile::take(usage.largest, kChecksumPieceBytes)) continue;
    // What other processes have written here is not in by_use_.
    if (!drop_oldest() && !PieceFile::take(file_.path(), kChecksumPieceBytes)) return false;
  }
  return true;
}

bool PieceCache::drop_oldest() {
  while (true) {
    int64_t oldest = -1;
    {
      const std::lock_guard lock(mutex_);
      if (by_use_.empty()) return false;
      oldest = by_use_.front();
      by_use_.pop_front();
      where_.erase(oldest);
    }
    const int64_t offset = oldest * kChecksumPieceBytes;
    if (file_.is_hole(offset)) continue;  // taken by another
    return file_.drop(offset, checksums_.piece_bytes(oldest));
  }
}

void PieceCache::will_need(int64_t begin, int64_t end) {
  if (begin >= end) return;
  const auto most =
      std::min(kMostWanted, static_cast<size_t>(bound_bytes_ / kChecksumPieceBytes / 2));
  {
    const std::lock_guard lock(mutex_);
    for (int64_t piece = begin / kChecksumPieceBytes; piece <= (end - 1) / kChecksumPieceBytes;
         ++piece) {
      if (in_flight_.count(piece) > 0 || wanted_.size() >= most) continue;
      // Pieces that others have written are found by get().
      if (where_.count(piece) > 0 && !file_.is_hole(piece * kChecksumPieceBytes)) continue;
      if (!is_wanted_.insert(piece).second) continue;
      wanted_.push_back(piece);
      if (threads_.size() < kFetchThreads) threads_.emplace_back([this] { work(); });
    }
  }
  changed_.notify_all();
}

void PieceCache::work() {
  std::string bytes;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !wanted_.empty(); });
    if (stop_) return;
    const int64_t piece = wanted_.front();
    wanted_.pop_front();
    is_wanted_.erase(piece);
    lock.unlock();
    try {
      get(piece, bytes);
    } catch (const Error&) {
      // The read of the piece tries again, and throws what it meets.
    }
    lock.lock();
  }
}

int64_t PieceCache::fetched_bytes() const {
  const std::lock_guard lock(mutex_);
  return fetched_bytes_;
}

}  // namespace tutti::data
