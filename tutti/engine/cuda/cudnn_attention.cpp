#include <cudnn.h>

#include <array>
#include <bit>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/engine/cuda/attention.h"

// Its own copy of a JSON library stays out; nothing here is stored.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "tutti/base/check.h"
#include "tutti/engine/cuda/attention_choice.h"
#include "tutti/engine/cuda/check.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/notes.h"

namespace tutti::engine {
namespace {

namespace fe = cudnn_frontend;
using GraphTensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Numbers by which a plan's tensors are given their addresses.
enum Tensor : int64_t { kQ = 1, kK, kV, kOut, kLse, kDOut, kDQ, kDK, kDV };

void dnn_check(cudnnStatus_t status, const char* call,
               const std::source_location& at = std::source_location::current()) {
  library_check(status == CUDNN_STATUS_SUCCESS, "cuDNN", call, static_cast<int>(status),
                cudnnGetErrorString(status), "attention", at);
}

// What a plan depends on.
struct Shape {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  float scale;
  int64_t qkv_ld, out_ld;
  int64_t d_out_ld, d_qkv_ld;  // 0: forward
  bool lse;

  using Key = std::array<int64_t, 11>;
  Key key() const {
    return {batch,    sequence,   heads,
            kv_heads, head_dim,   static_cast<int64_t>(std::bit_cast<uint32_t>(scale)),
            qkv_ld,   out_ld,     d_out_ld,
            d_qkv_ld, lse ? 1 : 0};
  }
};

struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;  // null: the library has none
  int64_t workspace_bytes = 0;
  std::string refusal;
};

// Rows of all heads lie side by side: [B, heads, T, D] with these strides.
fe::graph::Tensor_attributes rows_of(const Shape& s, const char* name, Tensor number, int64_t heads,
                                     int64_t ld) {
  return fe::graph::Tensor_attributes()
      .set_name(name)
      .set_uid(number)
      .set_dim({s.batch, heads, s.sequence, s.head_dim})
      .set_stride({s.sequence * ld, s.head_dim, ld, 1});
}

void place_output(const Shape& s, const GraphTensor& tensor, Tensor number, int64_t heads,
                  int64_t ld) {
  tensor->set_output(true)
      .set_uid(number)
      .set_dim({s.batch, heads, s.sequence, s.head_dim})
      .set_stride({s.sequence * ld, s.head_dim, ld, 1});
}

fe::graph::Tensor_attributes& place_lse(const Shape& s, fe::graph::Tensor_attributes& lse) {
  return lse.set_uid(kLse)
      .set_dim({s.batch, s.heads, s.sequence, 1})
      .set_stride({s.heads * s.sequence, s.sequence, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}

std::shared_ptr<fe::graph::Graph> new_graph() {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

std::shared_ptr<fe::graph::Graph> describe_forward(const Shape& s) {
  auto graph = new_graph();
  const GraphTensor q = graph->tensor(rows_of(s, "q", kQ, s.heads, s.qkv_ld));
  const GraphTensor k = graph->tensor(rows_of(s, "k", kK, s.kv_heads, s.qkv_ld));
  const GraphTensor v = graph->tensor(rows_of(s, "v", kV, s.kv_heads, s.qkv_ld));
  const auto options = fe::graph::SDPA_attributes()
                           .set_name("attention_forward")
                           .set_generate_stats(s.lse)
                           .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                           .set_diagonal_band_right_bound(0)
                           .set_attn_scale(s.scale);
  const auto [out, lse] = graph->sdpa(q, k, v, options);
  place_output(s, out, kOut, s.heads, s.out_ld);
  if (s.lse) {
    place_lse(s, *lse);
    lse->set_output(true);
  }
  return graph;
}

std::shared_ptr<fe::graph::Graph> describe_backward(const Shape& s) {
  auto graph = new_graph();
  const GraphTensor q = graph->tensor(rows_of(s, "q", kQ, s.heads, s.qkv_ld));
  const GraphTensor k = graph->tensor(rows_of(s, "k", kK, s.kv_heads, s.qkv_ld));
  const GraphTensor v = graph->tensor(rows_of(s, "v", kV, s.kv_heads, s.qkv_ld));
  const GraphTensor out = graph->tensor(rows_of(s, "out", kOut, s.heads, s.out_ld));
  const GraphTensor d_out = graph->tensor(rows_of(s, "d_out", kDOut, s.heads, s.d_out_ld));
  fe::graph::Tensor_attributes given_lse;
  const GraphTensor lse = graph->tensor(place_lse(s, given_lse.set_name("lse")));
  const auto options = fe::graph::SDPA_backward_attributes()
                           .set_name("attention_backward")
                           .set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
                           .set_diagonal_band_right_bound(0)
                           .set_deterministic_algorithm(true)
                           .set_attn_scale(s.scale);
  const auto [d_q, d_k, d_v] = graph->sdpa_backward(q, k, v, out, d_out, lse, options);
  place_output(s, d_q, kDQ, s.heads, s.d_qkv_ld);
  place_output(s, d_k, kDK, s.kv_heads, s.d_qkv_ld);
  place_output(s, d_v, kDV, s.kv_heads, s.d_qkv_ld);
  return graph;
}

// Kernels load 16 bytes at a time.
bool aligned(const Matrix& x) {
  constexpr int64_t kBytes = 16;
  return reinterpret_cast<uintptr_t>(x.data) % kBytes == 0 &&
         x.ld * dtype_bytes(x.dtype) % kBytes == 0;
}

template <typename Args>
AttentionShape shape_of(const Args& args, bool all_aligned) {
  return {args.batch,
          args.sequence,
          args.heads,
          args.kv_heads,
          args.head_dim,
          args.qkv.dtype,
          static_cast<bool>(args.starts),
          all_aligned};
}

char* columns(const Matrix& x, int64_t first) {
  return static_cast<char*>(x.data) + first * dtype_bytes(x.dtype);
}

}  // namespace

struct CudnnAttention::Plans {
  cudnnHandle_t handle = nullptr;
  std::map<Shape::Key, Plan> plans;

  const Plan& find(CudaStream& stream, const Shape& shape) {
    const auto found = plans.find(shape.key());
    if (found != plans.end()) return found->second;
    TUTTI_CHECK(!stream.capturing(),
                "attention of new sizes (B{} T{} A{} K{} D{}) in a captured step", shape.batch,
                shape.sequence, shape.heads, shape.kv_heads, shape.head_dim);
    Plan plan;
    auto graph = shape.d_out_ld == 0 ? describe_forward(shape) : describe_backward(shape);
    fe::error_t result = graph->build(handle, {fe::HeurMode_t::A});
    if (result.is_good()) result = graph->get_workspace_size(plan.workspace_bytes);
    if (result.is_good()) {
      plan.graph = std::move(graph);
    } else {
      plan.refusal = result.get_message();
    }
    return plans.emplace(shape.key(), std::move(plan)).first->second;
  }

  void run(CudaStream& stream, const Plan& plan, const char* op,
           std::unordered_map<int64_t, void*>& tensors) const {
    void* workspace = stream.workspace(plan.workspace_bytes);
    fe::error_t result = plan.graph->execute(handle, tensors, workspace);
    library_check(result.is_good(), "cuDNN frontend", "execute",
                  static_cast<int>(result.get_code()), result.get_message().c_str(), op);
  }
};

CudnnAttention::CudnnAttention(CudaStream& stream)
    : plans_(std::make_unique<Plans>()), stream_(stream) {
  dnn_check(cudnnCreate(&plans_->handle), "cudnnCreate");
  dnn_check(cudnnSetStream(plans_->handle, stream.handle()), "cudnnSetStream");
}

CudnnAttention::~CudnnAttention() {
  plans_->plans.clear();
  cudnnDestroy(plans_->handle);
}

bool CudnnAttention::refuse(const AttentionShape& shape, const std::string& reason) {
  refusal_ = reason;
  note(plain_attention_note(shape, reason));
  return false;
}

bool CudnnAttention::forward(const AttentionForwardArgs& args) {
  const AttentionShape asked = shape_of(args, aligned(args.qkv) && aligned(args.out));
  if (const std::string reason = why_not_fused(asked); !reason.empty()) {
    return refuse(asked, reason);
  }
  const Shape shape = {args.batch,
                       args.sequence,
                       args.heads,
                       args.kv_heads,
                       args.head_dim,
                       attention_scale(args.scale, args.head_dim),
                       args.qkv.ld,
                       args.out.ld,
                       0,
                       0,
                       static_cast<bool>(args.lse)};
  const Plan& plan = plans_->find(stream_, shape);
  if (plan.graph == nullptr) return refuse(asked, plan.refusal);
  std::unordered_map<int64_t, void*> tensors = {
      {kQ, args.qkv.data},
      {kK, columns(args.qkv, args.heads * args.head_dim)},
      {kV, columns(args.qkv, (args.heads + args.kv_heads) * args.head_dim)},
      {kOut, args.out.data}};
  if (args.lse) tensors[kLse] = args.lse.data;
  plans_->run(stream_, plan, "attention_forward", tensors);
  return true;
}

bool CudnnAttention::backward(const AttentionBackwardArgs& args) {
  const AttentionShape asked = shape_of(
      args, aligned(args.qkv) && aligned(args.out) && aligned(args.d_out) && aligned(args.d_qkv));
  if (const std::string reason = why_not_fused(asked); !reason.empty()) {
    return refuse(asked, reason);
  }
  const Shape shape = {args.batch,    args.sequence, args.heads,
                       args.kv_heads, args.head_dim, attention_scale(args.scale, args.head_dim),
                       args.qkv.ld,   args.out.ld,   args.d_out.ld,
                       args.d_qkv.ld, true};
  const Plan& plan = plans_->find(stream_, shape);
  if (plan.graph == nullptr) return refuse(asked, plan.refusal);
  const int64_t keys = args.heads * args.head_dim;
  const int64_t values = (args.heads + args.kv_heads) * args.head_dim;
  std::unordered_map<int64_t, void*> tensors = {{kQ, args.qkv.data},
                                                {kK, columns(args.qkv, keys)},
                                                {kV, columns(args.qkv, values)},
                                                {kOut, args.out.data},
                                                {kLse, args.lse.data},
                                                {kDOut, args.d_out.data},
                                                {kDQ, args.d_qkv.data},
                                                {kDK, columns(args.d_qkv, keys)},
                                                {kDV, columns(args.d_qkv, values)}};
  plans_->run(stream_, plan, "attention_backward", tensors);
  return true;
}

}  // namespace tutti::engine
