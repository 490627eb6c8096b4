// Where operations run: a device and, on it, an ordered queue. The CPU's stream runs each
// operation to its end on `threads` OpenMP threads.
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
  virtual void synchronize() = 0;            // returns when all that was enqueued is done
  virtual int threads() const { return 1; }  // of the host that one operation may use

  // Where operands are. Of ArenaKind::host the host reads and writes them itself, after
  // synchronize(); of ArenaKind::device only by transfer().
  virtual ArenaKind memory() const { return ArenaKind::host; }
  // to = from; either is memory of the stream or of the host. Enqueued, so host memory must stay as
  // it is until the stream has come past; host memory that is no pinned arena is done with on
  // return.
  virtual void transfer(void* to, const void* from, int64_t bytes);
  virtual void zero(void* to, int64_t bytes);

  // Points in the queue, by number: reach(point) returns when everything is done that was enqueued
  // before the last mark(point). At once where there was none.
  static constexpr int kPoints = 4;
  virtual void mark(int /*point*/) {}
  virtual void reach(int /*point*/) {}

  // Enqueues what `work` enqueues. Where the device can, it is recorded on the first call of a
  // `key` and replayed from then on without calling `work`: everything it enqueues must then have
  // the same operands each time, and the host must have nothing to do in it. forget(key) drops it.
  virtual void replay(int /*key*/, const std::function<void()>& work) { work(); }
  virtual void forget(int /*key*/) {}
  virtual bool replays() const { return false; }

  virtual void push_range(const char* /*name*/) {}  // see NamedRange
  virtual void pop_range() {}

  // For tests, which let an operation make a mistake: another table, which outlives its use.
  void set_ops(const OpTable& ops) { ops_ = &ops; }

  // Notes every operation from now on; null stops. The recorder must outlive its use.
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }
  Recorder* recorder() const { return recorder_; }

 protected:
  explicit Stream(const OpTable& ops) : ops_(&ops) {}

 private:
  const OpTable* ops_;
  Recorder* recorder_ = nullptr;
};

// A named part of the work, shown by profilers while it is in scope.
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

// The table of the CPU, complete; check_complete aborts naming a missing entry.
const OpTable& cpu_ops();
void check_complete(const OpTable& table);

// Instruction sets of the CPU kernels, best first: "avx512_bf16", "avx512", "avx2", "plain".
// The best the machine has is used; select_cpu_isa(name) forces another (tests, or the environment
// variable TUTTI_CPU_ISA) and throws unsupported when the machine lacks it.
std::string cpu_isa();
void select_cpu_isa(const std::string& name);

}  // namespace tutti::engine
