// A stream: an ordered queue of operations on a device. The CPU's stream is synchronous and runs
// each operation on `threads` OpenMP threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tutti/engine/arena.h"
#include "tutti/engine/ops.h"
#include "tutti/engine/recorder.h"

namespace tutti::engine {

class Stream {
 public:
  virtual ~Stream() = default;
  const OpTable& ops() const { return *ops_; }
  virtual void synchronize() = 0;            // returns when all enqueued work is complete
  virtual int threads() const { return 1; }  // host threads that one operation may use

  // Kind of memory of the operands. With ArenaKind::host the host accesses them directly, after
  // synchronize(); with ArenaKind::device only through transfer().
  virtual ArenaKind memory() const { return ArenaKind::host; }
  // to = from; either is stream or host memory. Asynchronous: a pinned arena must stay unchanged
  // until the stream has executed the copy. Pageable host memory may be reused on return.
  virtual void transfer(void* to, const void* from, int64_t bytes);
  virtual void zero(void* to, int64_t bytes);

  // Numbered points in the queue: reach(point) returns when all work enqueued before the last
  // mark(point) is complete; at once if there was none.
  static constexpr int kPoints = 4;
  virtual void mark(int /*point*/) {}
  virtual void reach(int /*point*/) {}

  // Enqueues the operations of `work`. If the device supports it (CUDA graphs), they are captured
  // on the first call with a `key` and replayed later without calling `work`: their operands must
  // then be the same each time, and `work` must do nothing on the host. forget(key) drops the
  // capture.
  virtual void replay(int /*key*/, const std::function<void()>& work) { work(); }
  virtual void forget(int /*key*/) {}
  virtual bool replays() const { return false; }

  virtual void push_range(const char* /*name*/) {}  // see NamedRange
  virtual void pop_range() {}

  // For tests that inject faults: replaces the table, which must outlive its use.
  void set_ops(const OpTable& ops) { ops_ = &ops; }

  // Records every later operation; null stops. The recorder must outlive its use.
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }
  Recorder* recorder() const { return recorder_; }

 protected:
  explicit Stream(const OpTable& ops) : ops_(&ops) {}

 private:
  const OpTable* ops_;
  Recorder* recorder_ = nullptr;
};

// A named range of work while in scope, shown by profilers (NVTX).
class NamedRange {
 public:
  NamedRange(Stream& stream, const char* name) : stream_(stream) { stream_.push_range(name); }
  ~NamedRange() { stream_.pop_range(); }
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

 private:
  Stream& stream_;
};

// threads 0: one per available core.
std::unique_ptr<Stream> make_cpu_stream(int threads = 0);

// The complete table of the CPU; check_complete aborts and names a missing entry.
const OpTable& cpu_ops();
void check_complete(const OpTable& table);

// Instruction sets of the CPU kernels, best first: "avx512_bf16", "avx512", "avx2", "plain".
// The best that the machine supports is used; select_cpu_isa(name), or the environment variable
// TUTTI_CPU_ISA, forces another for tests and throws unsupported if the machine lacks it.
std::string cpu_isa();
void select_cpu_isa(const std::string& name);

}  // namespace tutti::engine
