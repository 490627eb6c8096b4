// The file of what API keys have used: a line of JSON for each request that has ended,
//
//   {"time_ms":1769860800000,"key":"0123456789ab","name":"ann","model":"chat","request":"cmpl-...",
//    "prompt_tokens":9,"cached_tokens":0,"answer_tokens":24,"pico_usd":57000000}
//
// A line is one write to the end of the file: a process that is killed leaves whole lines, and
// loses only what its running requests had used. sync() makes them durable against a power cut,
// which may tear the last line: readers pass over lines that are none, and a writer begins a new
// one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "tutti/base/file.h"
#include "tutti/endpoint/key_meter.h"

namespace tutti::endpoint {

struct UseRecord {
  bool operator==(const UseRecord&) const = default;
  int64_t time_ms = 0;  // wall clock
  std::string key;      // its id
  std::string name;
  std::string model;
  std::string request;
  KeyUse use;
};

// Calls `take` for each line, in order; nothing where the file is not there. Returns how many lines
// were none.
int64_t read_use_log(FileSystem& files, const std::string& path,
                     const std::function<void(const UseRecord&)>& take);

class UseLog {
 public:
  // Throws as FileSystem::open_append.
  UseLog(FileSystem& files, const std::string& path);
  UseLog(const UseLog&) = delete;
  UseLog& operator=(const UseLog&) = delete;

  // Never throws: what cannot be written (a full disk) is kept and written before what follows.
  void add(const UseRecord& record);
  // Tries what is kept again. False: it still cannot be written, and nothing more should be used;
  // `problem` says why.
  bool is_kept(std::string& problem);
  void sync();  // durable on return, as far as it can be; the next call tries again

 private:
  void write_pending();

  std::mutex mutex_;
  std::unique_ptr<WritableFile> file_;
  std::string pending_;
  std::string problem_;
  bool is_torn_ = false;  // the file may end within a line
  bool is_dirty_ = false;
};

}  // namespace tutti::endpoint
