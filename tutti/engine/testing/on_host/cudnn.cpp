// cuDNN's attention on the host: the functions of the frontend that the CUDA backend calls,
// computed by sdpa.h when the stream executes them. It rejects what the frontend's support surface
// rejects on Hopper with cuDNN 9.19, requires the workspace of the real graph
// (base/attention_workspace.h), and overwrites it. With TUTTI_HOST_CUDNN=no-odd-groups it also
// rejects odd lengths with grouped heads, for tests of the fallback.
#include <cudnn_frontend.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/base/attention_workspace.h"
#include "tutti/engine/testing/on_host/queue.h"
#include "tutti/engine/testing/on_host/sdpa.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_BAD_PARAM";
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

// NOLINTBEGIN(readability-identifier-naming): the library's own names
namespace cudnn_frontend::graph {
namespace {

namespace on_host = tutti::engine::on_host;
using tutti::bf16;
using Addresses = std::unordered_map<int64_t, void*>;

error_t refused(const std::string& why) { return {error_code_t::GRAPH_NOT_SUPPORTED, why}; }

using Dims = std::vector<int64_t>;

bool is_packed(const Tensor& x) {
  const Dims& dim = x->get_dim();
  return x->get_stride() == Dims{dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
}

bool is_index(const Tensor& x, int64_t count) {
  return x != nullptr && x->get_dim() == Dims{count, 1, 1, 1} &&
         x->get_data_type() == DataType_t::INT32 && x->get_uid() != 0;
}

template <typename T>
on_host::HostRows<T> rows_of(const Tensor& x, const Addresses& at) {
  const Dims& stride = x->get_stride();
  on_host::HostRows<T> out = {static_cast<T*>(at.at(x->get_uid())), stride[0], stride[1],
                              stride[2]};
  if (const Tensor& offsets = x->get_ragged_offset()) {
    out.offsets = static_cast<const int32_t*>(at.at(offsets->get_uid()));
  }
  return out;
}

}  // namespace

std::array<Tensor, 2> Graph::sdpa(Tensor q, Tensor k, Tensor v, const SDPA_attributes& attributes) {
  q_ = std::move(q);
  k_ = std::move(k);
  v_ = std::move(v);
  options_ = attributes.options();
  out_ = tensor({});
  if (options_.stats) stats_ = tensor({});
  return {out_, stats_};
}

std::array<Tensor, 3> Graph::sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor out, Tensor d_out,
                                           Tensor stats,
                                           const SDPA_backward_attributes& attributes) {
  backward_ = true;
  q_ = std::move(q);
  k_ = std::move(k);
  v_ = std::move(v);
  out_ = std::move(out);
  d_out_ = std::move(d_out);
  stats_ = std::move(stats);
  options_ = attributes.options();
  d_q_ = tensor({});
  d_k_ = tensor({});
  d_v_ = tensor({});
  return {d_q_, d_k_, d_v_};
}

// The 16-bit operands.
std::vector<Tensor> Graph::operands() const {
  if (backward_) return {q_, out_, d_out_, d_q_, k_, v_, d_k_, d_v_};
  return {q_, out_, k_, v_};
}

error_t Graph::check() const {
  const Dims& q = q_->get_dim();
  const Dims& k = k_->get_dim();
  if (io_type_ != DataType_t::BFLOAT16) return refused("the operands are not bf16");
  if (q.size() != 4 || k.size() != 4 || k[1] <= 0 || q[1] % k[1] != 0 || q[0] != k[0] ||
      q[3] != k[3]) {
    return refused("sizes of queries and keys");
  }
  if (q[3] % 8 != 0 || q[3] > 256) return refused("hidden_dim should be multiple of 8, up to 256");
  const size_t query_like = backward_ ? 4 : 2;
  const std::vector<Tensor> all = operands();
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& one = all[i];
    const bool ragged = one->get_ragged_offset() != nullptr;
    if (one->get_uid() == 0 || one->get_dim() != (i < query_like ? q : k)) {
      return {error_code_t::ATTRIBUTE_NOT_SET, "number or dim of " + one->get_name()};
    }
    if (one->get_stride().size() != 4 || one->get_stride()[3] != 1) {
      return refused("The stride for the last dimension should be 1");
    }
    if (ragged != options_.padding) {
      return refused("Ragged offsets are only supported with padding mask");
    }
    if (ragged && !is_index(one->get_ragged_offset(), q[0] + 1)) {
      return {error_code_t::ATTRIBUTE_NOT_SET, "offsets of " + one->get_name()};
    }
  }
  if (options_.padding &&
      !(is_index(options_.seq_len_q, q[0]) && is_index(options_.seq_len_kv, q[0]))) {
    return {error_code_t::ATTRIBUTE_NOT_SET, "Padding mask requires seq_len_q/seq_len_kv"};
  }
  if (options_.right_bound && *options_.right_bound != 0) return refused("right bound");
  if (stats_ != nullptr) {
    if (stats_->get_dim() != Dims{q[0], q[1], q[2], 1} || stats_->get_uid() == 0 ||
        stats_->get_data_type() != DataType_t::FLOAT) {
      return {error_code_t::ATTRIBUTE_NOT_SET, "stats"};
    }
    if (!is_packed(stats_)) return refused("a non-ragged Stats must be a packed BHSD tensor");
  }
  const char* mode = std::getenv("TUTTI_HOST_CUDNN");
  if (mode != nullptr && std::string_view(mode) == "no-odd-groups" && q[1] != k[1] &&
      q[2] % 2 != 0) {
    return refused("odd lengths with grouped heads");
  }
  return {};
}

error_t Graph::build(cudnnHandle_t handle, const std::vector<HeurMode_t>& modes) {
  if (handle == nullptr || modes.empty() || q_ == nullptr) {
    return {error_code_t::INVALID_VALUE, "build"};
  }
  if (on_host::captures()) return {error_code_t::INVALID_VALUE, "build while captured"};
  error_t result = check();
  built_ = result.is_good();
  return result;
}

error_t Graph::get_workspace_size(int64_t& bytes) const {
  if (!built_) return {error_code_t::INVALID_VALUE, "get_workspace_size before build"};
  const Dims& q = q_->get_dim();
  bytes = !backward_ ? 0
                     : tutti::attention_backward_bytes(
                           {q[0], q[2], k_->get_dim()[2], q[1], k_->get_dim()[1], q[3]},
                           options_.deterministic);
  return {};
}

error_t Graph::execute(cudnnHandle_t handle, Addresses& tensors, void* workspace) const {
  int64_t needed = 0;
  if (error_t result = get_workspace_size(needed); !result.is_good()) return result;
  const auto missing = [&](const Tensor& x) {
    const auto found = tensors.find(x->get_uid());
    return found == tensors.end() || found->second == nullptr;
  };
  std::vector<Tensor> all = operands();
  for (const Tensor& one : all) {
    constexpr uintptr_t kAlignment = 16;
    if (missing(one) || reinterpret_cast<uintptr_t>(tensors.at(one->get_uid())) % kAlignment != 0) {
      return {error_code_t::INVALID_VALUE, "address of " + one->get_name()};
    }
    if (one->get_ragged_offset() != nullptr && missing(one->get_ragged_offset())) {
      return {error_code_t::INVALID_VALUE, "offsets of " + one->get_name()};
    }
  }
  if (stats_ != nullptr && missing(stats_)) return {error_code_t::INVALID_VALUE, "stats"};
  if (needed > 0 && workspace == nullptr) return {error_code_t::INVALID_VALUE, "workspace"};
  const Dims& q = q_->get_dim();
  on_host::HostAttention work;
  work.batch = q[0];
  work.heads = q[1];
  work.kv_heads = k_->get_dim()[1];
  work.queries = q[2];
  work.keys = k_->get_dim()[2];
  work.dim = q[3];
  work.scale = options_.scale;
  work.causal = options_.right_bound.has_value();
  if (options_.padding) {
    for (const auto& [lengths, to] : {std::pair{options_.seq_len_q, &work.query_counts},
                                      std::pair{options_.seq_len_kv, &work.key_counts}}) {
      if (missing(lengths)) return {error_code_t::INVALID_VALUE, "lengths"};
      *to = static_cast<const int32_t*>(tensors.at(lengths->get_uid()));
    }
  }
  work.q = rows_of<bf16>(q_, tensors);
  work.k = rows_of<bf16>(k_, tensors);
  work.v = rows_of<bf16>(v_, tensors);
  work.out = rows_of<bf16>(out_, tensors);
  if (stats_ != nullptr) work.stats = rows_of<float>(stats_, tensors);
  if (backward_) {
    work.d_out = rows_of<bf16>(d_out_, tensors);
    work.d_q = rows_of<bf16>(d_q_, tensors);
    work.d_k = rows_of<bf16>(d_k_, tensors);
    work.d_v = rows_of<bf16>(d_v_, tensors);
  }
  on_host::enqueue(handle->stream, [work, workspace, needed, backward = backward_] {
    // Overwrites the workspace, to expose other uses of it.
    if (needed > 0) std::memset(workspace, 0xff, static_cast<size_t>(needed));
    if (backward) {
      on_host::attend_backward(work);
    } else {
      on_host::attend(work);
    }
  });
  return {};
}

}  // namespace cudnn_frontend::graph
// NOLINTEND(readability-identifier-naming)
