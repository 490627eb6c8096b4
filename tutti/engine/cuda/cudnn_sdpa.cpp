#include <cudnn.h>
#include <fmt/format.h>

#include <bit>
#include <string>
#include <unordered_map>

#include "tutti/engine/cuda/sdpa.h"

// Disables the frontend's bundled JSON library, which serialisation alone needs.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "tutti/base/check.h"
#include "tutti/engine/cuda/check.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {
namespace {

namespace fe = cudnn_frontend;
using GraphTensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Tensor ids, which map a plan's tensors to addresses.
enum Tensor : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDOut,
  kDQ,
  kDK,
  kDV,
  kQueries,
  kKeys,
  kOffsets,  // offsets of an operand above have id kOffsets + its id
};

void dnn_check(cudnnStatus_t status, const char* call,
               const std::source_location& at = std::source_location::current()) {
  library_check(status == CUDNN_STATUS_SUCCESS, "cuDNN", call, static_cast<int>(status),
                cudnnGetErrorString(status), "attention", at);
}

// Builds the library's graph of a call.
class Description {
 public:
  explicit Description(const SdpaShape& shape)
      : s_(shape), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<fe::graph::Graph> forward() {
    const GraphTensor q = query_rows("q", kQ, s_.q);
    const GraphTensor k = key_rows("k", kK, s_.kv);
    const GraphTensor v = key_rows("v", kV, s_.kv);
    auto options =
        fe::graph::SDPA_attributes().set_name("attention_forward").set_generate_stats(s_.lse);
    set_options(options);
    const auto [out, lse] = graph_->sdpa(q, k, v, options);
    set_output(out, kOut, s_.call.heads, s_.call.queries, s_.out);
    if (s_.lse) {
      lay_out_lse(*lse);
      lse->set_output(true);
    }
    return graph_;
  }

  std::shared_ptr<fe::graph::Graph> backward() {
    const GraphTensor q = query_rows("q", kQ, s_.q);
    const GraphTensor k = key_rows("k", kK, s_.kv);
    const GraphTensor v = key_rows("v", kV, s_.kv);
    const GraphTensor out = query_rows("out", kOut, s_.out);
    const GraphTensor d_out = query_rows("d_out", kDOut, s_.d_out);
    fe::graph::Tensor_attributes given_lse;
    const GraphTensor lse = graph_->tensor(lay_out_lse(given_lse.set_name("lse")));
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention_backward")
                       .set_deterministic_algorithm(s_.fixed_order);
    set_options(options);
    const auto [d_q, d_k, d_v] = graph_->sdpa_backward(q, k, v, out, d_out, lse, options);
    set_output(d_q, kDQ, s_.call.heads, s_.call.queries, s_.d_q);
    set_output(d_k, kDK, s_.call.kv_heads, s_.call.keys, s_.d_kv);
    set_output(d_v, kDV, s_.call.kv_heads, s_.call.keys, s_.d_kv);
    return graph_;
  }

 private:
  template <typename Options>
  void set_options(Options& options) {
    options.set_attn_scale(s_.scale);
    if (s_.causal) {
      options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
          .set_diagonal_band_right_bound(0);
    }
    if (s_.lengths) {
      options.set_padding_mask(true)
          .set_seq_len_q(indices("queries", kQueries, s_.call.batch))
          .set_seq_len_kv(indices("keys", kKeys, s_.call.batch));
    }
  }

  GraphTensor indices(const std::string& name, int64_t number, int64_t count) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_name(name)
                              .set_uid(number)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(fe::DataType_t::INT32));
  }

  // Heads are adjacent in a row: [batch, heads, rows, D] with these strides.
  void lay_out(fe::graph::Tensor_attributes& tensor, Tensor number, int64_t heads, int64_t rows,
               const SdpaRows& at) {
    tensor.set_uid(number)
        .set_dim({s_.call.batch, heads, rows, s_.call.head_dim})
        .set_stride({at.batch, s_.call.head_dim, at.ld, 1});
    if (s_.lengths) {
      const std::string name = fmt::format("offsets_{}", static_cast<int64_t>(number));
      tensor.set_ragged_offset(indices(name, kOffsets + number, s_.call.batch + 1));
    }
  }
  GraphTensor rows_of(const char* name, Tensor number, int64_t heads, int64_t rows,
                      const SdpaRows& at) {
    fe::graph::Tensor_attributes tensor;
    lay_out(tensor.set_name(name), number, heads, rows, at);
    return graph_->tensor(tensor);
  }
  GraphTensor query_rows(const char* name, Tensor number, const SdpaRows& at) {
    return rows_of(name, number, s_.call.heads, s_.call.queries, at);
  }
  GraphTensor key_rows(const char* name, Tensor number, const SdpaRows& at) {
    return rows_of(name, number, s_.call.kv_heads, s_.call.keys, at);
  }
  void set_output(const GraphTensor& tensor, Tensor number, int64_t heads, int64_t rows,
                  const SdpaRows& at) {
    lay_out(tensor->set_output(true), number, heads, rows, at);
  }

  fe::graph::Tensor_attributes& lay_out_lse(fe::graph::Tensor_attributes& lse) {
    const int64_t queries = s_.call.queries;
    return lse.set_uid(kLse)
        .set_dim({s_.call.batch, s_.call.heads, queries, 1})
        .set_stride({s_.call.heads * queries, queries, 1, 1})
        .set_data_type(fe::DataType_t::FLOAT);
  }

  const SdpaShape& s_;
  std::shared_ptr<fe::graph::Graph> graph_;
};

}  // namespace

struct SdpaGraph {
  std::shared_ptr<fe::graph::Graph> graph;
  bool lengths = false, backward = false, lse = false;
};

struct SdpaPlans::Library {
  cudnnHandle_t handle = nullptr;
};

SdpaShape::Key SdpaShape::key() const {
  Key key = {call.batch,
             call.queries,
             call.keys,
             call.heads,
             call.kv_heads,
             call.head_dim,
             static_cast<int64_t>(std::bit_cast<uint32_t>(scale)),
             causal,
             lengths,
             backward,
             fixed_order,
             lse};
  for (const SdpaRows* rows : {&q, &kv, &out, &d_out, &d_q, &d_kv}) {
    key.push_back(rows->ld);
    key.push_back(rows->batch);
  }
  return key;
}

SdpaPlans::SdpaPlans(CudaStream& stream) : stream_(stream), library_(std::make_unique<Library>()) {
  dnn_check(cudnnCreate(&library_->handle), "cudnnCreate");
  dnn_check(cudnnSetStream(library_->handle, stream.handle()), "cudnnSetStream");
}

SdpaPlans::~SdpaPlans() {
  plans_.clear();
  cudnnDestroy(library_->handle);
}

const SdpaPlan& SdpaPlans::find(const SdpaShape& shape) {
  const SdpaShape::Key key = shape.key();
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  const AttentionCall& call = shape.call;
  TUTTI_CHECK(!stream_.capturing(),
              "attention of new sizes (B{} queries {} keys {} A{} K{} D{}) in a captured step",
              call.batch, call.queries, call.keys, call.heads, call.kv_heads, call.head_dim);
  SdpaPlan plan;
  Description description(shape);
  auto graph = shape.backward ? description.backward() : description.forward();
  fe::error_t result = graph->build(library_->handle, {fe::HeurMode_t::A});
  if (result.is_good()) result = graph->get_workspace_size(plan.workspace_bytes);
  if (result.is_good()) {
    plan.graph = std::make_shared<SdpaGraph>(
        SdpaGraph{std::move(graph), shape.lengths, shape.backward, shape.lse});
  } else {
    plan.refusal = result.get_message();
  }
  return plans_.emplace(key, std::move(plan)).first->second;
}

void SdpaPlans::run(const SdpaPlan& plan, const char* op, const SdpaOperands& operands,
                    void* workspace) {
  const SdpaGraph& made = *plan.graph;
  std::unordered_map<int64_t, void*> tensors = {
      {kQ, operands.q}, {kK, operands.k}, {kV, operands.v}, {kOut, operands.out}};
  const auto offsets = [&](Tensor number, int32_t* at) {
    if (made.lengths) tensors[kOffsets + number] = at;
  };
  offsets(kQ, operands.q_offsets);
  offsets(kK, operands.kv_offsets);
  offsets(kV, operands.kv_offsets);
  offsets(kOut, operands.out_offsets);
  if (made.lengths) {
    tensors[kQueries] = operands.queries;
    tensors[kKeys] = operands.keys;
  }
  if (made.backward || made.lse) tensors[kLse] = operands.lse;
  if (made.backward) {
    tensors[kDOut] = operands.d_out;
    tensors[kDQ] = operands.d_q;
    tensors[kDK] = operands.d_k;
    tensors[kDV] = operands.d_v;
    offsets(kDOut, operands.d_out_offsets);
    offsets(kDQ, operands.d_q_offsets);
    offsets(kDK, operands.d_kv_offsets);
    offsets(kDV, operands.d_kv_offsets);
  }
  fe::error_t result = made.graph->execute(library_->handle, tensors, workspace);
  library_check(result.is_good(), "cuDNN frontend", "execute", static_cast<int>(result.get_code()),
                result.get_message().c_str(), op);
}

}  // namespace tutti::engine
