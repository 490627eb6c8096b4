// Where operations run: a device and, on it, an ordered queue. The CPU's stream runs each
// operation to its end on `threads` OpenMP threads.
#pragma once

#include <memory>
#include <string>

#include "tutti/engine/ops.h"
#include "tutti/engine/recorder.h"

namespace tutti::engine {

class Stream {
 public:
  virtual ~Stream() = default;
  const OpTable& ops() const { return *ops_; }
  virtual void synchronize() = 0;            // returns when all that was enqueued is done
  virtual int threads() const { return 1; }  // of the host that one operation may use

  // Notes every operation from now on; null stops. The recorder must outlive its use.
  void set_recorder(Recorder* recorder) { recorder_ = recorder; }
  Recorder* recorder() const { return recorder_; }

 protected:
  explicit Stream(const OpTable& ops) : ops_(&ops) {}

 private:
  const OpTable* ops_;
  Recorder* recorder_ = nullptr;
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
