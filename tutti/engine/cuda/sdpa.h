// One call of cuDNN's fused attention ("scaled dot product attention"): its shape, its operands,
// and the execution plans of the library. cudnn_attention.cpp maps operations to calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/attention_workspace.h"

namespace tutti::engine {

class CudaStream;

// Elements between rows, and between the batch elements, of an operand [batch, rows, heads * D].
struct SdpaRows {
  int64_t ld = 0, batch = 0;
};

// Everything a plan depends on. Query head a uses key/value head a / (heads / kv_heads). In a
// causal call query i attends to keys 0 .. i, otherwise to every key.
//
// With lengths (packed documents) SdpaOperands holds the number of queries and keys of each batch
// element, at most those of the call, and the offsets of its rows; rows beyond them are neither
// read nor written. The log-sum-exp is always packed [batch, heads, queries]: with other layouts
// cuDNN's backward is wrong before version 9.26 (its frontend rejects them).
struct SdpaShape {
  AttentionCall call;
  float scale = 1;
  bool causal = true;
  bool lengths = false;
  bool backward = false;
  bool fixed_order = true;  // backward: deterministic
  bool lse = true;          // forward: write the log-sum-exp
  SdpaRows q, kv, out;      // kv: both keys and values
  SdpaRows d_out, d_q, d_kv;

  using Key = std::vector<int64_t>;
  Key key() const;
};

// Device addresses. Offsets [batch + 1] are in elements and ascending; lengths [batch].
struct SdpaOperands {
  void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr;  // bf16
  void* lse = nullptr;                                            // f32
  void *d_out = nullptr, *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  int32_t *queries = nullptr, *keys = nullptr;  // lengths
  int32_t *q_offsets = nullptr, *kv_offsets = nullptr, *out_offsets = nullptr;
  int32_t *d_out_offsets = nullptr, *d_q_offsets = nullptr, *d_kv_offsets = nullptr;
};

struct SdpaGraph;  // the library's

struct SdpaPlan {
  std::shared_ptr<SdpaGraph> graph;  // null: not supported by the library
  int64_t workspace_bytes = 0;
  std::string refusal;  // the library's message
};

class SdpaPlans {
 public:
  explicit SdpaPlans(CudaStream& stream);
  ~SdpaPlans();
  SdpaPlans(const SdpaPlans&) = delete;
  SdpaPlans& operator=(const SdpaPlans&) = delete;

  // Plans are cached; a new shape in a captured step aborts.
  const SdpaPlan& find(const SdpaShape& shape);
  // Enqueues the plan. `workspace` has plan.workspace_bytes, aligned to 256.
  void run(const SdpaPlan& plan, const char* op, const SdpaOperands& operands, void* workspace);

 private:
  struct Library;  // its handle
  CudaStream& stream_;
  std::unique_ptr<Library> library_;
  std::map<SdpaShape::Key, SdpaPlan> plans_;
};

}  // namespace tutti::engine
