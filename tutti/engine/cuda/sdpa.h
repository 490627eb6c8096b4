// One call of cuDNN's fused attention ("scaled dot product attention"): what it depends on, its
// operands, and the plans that the library makes of them. Which calls an operation consists of
// says cudnn_attention.cpp.
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

// Everything a plan depends on. Query head a uses key/value head a / (heads / kv_heads); a causal
// call lets query i see keys 0 .. i, else every key is seen.
//
// With lengths (packed documents) a batch element has as many queries and keys as SdpaOperands
// says, at most those of the call, and its rows begin where the offsets say; rows beyond them are
// neither read nor written. The log-sum-exp is [batch, heads, queries], packed, in any case: of
// other layouts cuDNN's backward is wrong before version 9.26 (its frontend refuses them).
struct SdpaShape {
  AttentionCall call;
  float scale = 1;
  bool causal = true;
  bool lengths = false;
  bool backward = false;
  bool fixed_order = true;  // backward
  bool lse = true;          // forward: returned
  SdpaRows q, kv, out;      // keys and values alike
  SdpaRows d_out, d_q, d_kv;

  using Key = std::vector<int64_t>;
  Key key() const;
};

// Addresses on the device. Offsets [batch + 1] are in elements and ascend; lengths [batch].
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
  std::shared_ptr<SdpaGraph> graph;  // null: the library has none
  int64_t workspace_bytes = 0;
  std::string refusal;  // in the library's words
};

class SdpaPlans {
 public:
  explicit SdpaPlans(CudaStream& stream);
  ~SdpaPlans();
  SdpaPlans(const SdpaPlans&) = delete;
  SdpaPlans& operator=(const SdpaPlans&) = delete;

  // Kept; a shape that is new in a captured step aborts.
  const SdpaPlan& find(const SdpaShape& shape);
  // Enqueues it. `workspace` has the plan's bytes, aligned to 256.
  void run(const SdpaPlan& plan, const char* op, const SdpaOperands& operands, void* workspace);

 private:
  struct Library;  // its handle
  CudaStream& stream_;
  std::unique_ptr<Library> library_;
  std::map<SdpaShape::Key, SdpaPlan> plans_;
};

}  // namespace tutti::engine
