// PREFIX.bin of a corpus in an object store, read by pieces (checksums.h: 64 KiB) through a bounded
// local cache, so that every piece crosses the network once while the cache can hold it, also over
// sessions, and of a host's ranks only one fetches what several need soon after each other.
//
// A piece is handed out when its bytes have their recorded checksum; local bytes that do not are
// fetched again, fetched ones are corrupt. will_need() fetches ahead, several pieces at once: a
// read of a piece that was announced early enough waits for no network.
//
// All corpora that a folder caches share its bound, over all processes. When it is reached, pieces
// go: first those of corpora that no process has open, the one opened longest ago first; then those
// of the corpus that holds most. So of n open corpora each keeps what it reads up to an n-th of the
// bound. Of its own pieces a process gives those away that it did not read for longest. The bound
// is exceeded by what is being written, a piece per thread. Where the disk is full or its file
// system makes no holes in files, pieces that find no space are not kept.
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tutti/base/object_store.h"
#include "tutti/data/corpus/checksums.h"
#include "tutti/data/corpus/piece_file.h"

namespace tutti::data {

struct CacheOptions {
  std::string folder = {};  // empty: corpora in the user's cache
  int64_t bytes = 0;        // bound of the folder, at least 64 pieces; 0: 16 GiB
};

class PieceCache {
 public:
  // `checksums` outlives this object. `name`: of the corpus, for people who look at the folder.
  PieceCache(std::unique_ptr<RangedFile> object, const CorpusChecksums& checksums,
             const CacheOptions& options, const std::string& name);
  ~PieceCache();
  PieceCache(const PieceCache&) = delete;
  PieceCache& operator=(const PieceCache&) = delete;

  void read(int64_t begin, int64_t end, char* out);  // bytes [begin, end)
  void will_need(int64_t begin, int64_t end);        // never fails
  int64_t fetched_bytes() const;                     // from the store, so far

 private:
  void get(int64_t piece, std::string& bytes);
  bool get_local(int64_t piece, std::string& bytes);
  void fetch_piece(int64_t piece, std::string& bytes);
  void used(int64_t piece);
  bool make_space();
  bool drop_oldest();
  void work();

  std::unique_ptr<RangedFile> object_;
  const CorpusChecksums& checksums_;
  const int64_t bound_bytes_;
  PieceFile file_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<int64_t> in_flight_;
  std::list<int64_t> by_use_;  // pieces that were local when used, the one to go next in front
  std::unordered_map<int64_t, std::list<int64_t>::iterator> where_;  // in by_use_
  std::deque<int64_t> wanted_;                                       // announced, not begun
  std::unordered_set<int64_t> is_wanted_;
  int64_t fetched_bytes_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tutti::data
