// cuDNN's frontend on the host (on_host/grid.h explains why): the part of its interface that the
// CUDA backend uses, with the original names. NVIDIA's reference documents the functions;
// engine/testing/on_host/cudnn.cpp implements them.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

// NOLINTBEGIN(readability-identifier-naming): the library's own names
namespace cudnn_frontend {

enum class DataType_t { NOT_SET, FLOAT, BFLOAT16, INT32 };
enum class HeurMode_t { A };
enum class DiagonalAlignment_t { TOP_LEFT };
enum class error_code_t { OK, ATTRIBUTE_NOT_SET, GRAPH_NOT_SUPPORTED, INVALID_VALUE };

class error_t {
 public:
  error_t() = default;
  error_t(error_code_t code, std::string message) : code_(code), message_(std::move(message)) {}
  bool is_good() const { return code_ == error_code_t::OK; }
  error_code_t get_code() const { return code_; }
  std::string get_message() const { return message_; }

 private:
  error_code_t code_ = error_code_t::OK;
  std::string message_;
};

namespace graph {

class Tensor_attributes {
 public:
  Tensor_attributes& set_name(const std::string& name) { return name_ = name, *this; }
  Tensor_attributes& set_uid(int64_t uid) { return uid_ = uid, *this; }
  Tensor_attributes& set_dim(const std::vector<int64_t>& dim) { return dim_ = dim, *this; }
  Tensor_attributes& set_stride(const std::vector<int64_t>& s) { return stride_ = s, *this; }
  Tensor_attributes& set_data_type(DataType_t type) { return type_ = type, *this; }
  Tensor_attributes& set_output(bool is_output) { return is_output_ = is_output, *this; }
  Tensor_attributes& set_ragged_offset(std::shared_ptr<Tensor_attributes> offset) {
    return ragged_offset_ = std::move(offset), *this;
  }
  const std::string& get_name() const { return name_; }
  int64_t get_uid() const { return uid_; }
  const std::vector<int64_t>& get_dim() const { return dim_; }
  const std::vector<int64_t>& get_stride() const { return stride_; }
  DataType_t get_data_type() const { return type_; }
  bool get_output() const { return is_output_; }
  const std::shared_ptr<Tensor_attributes>& get_ragged_offset() const { return ragged_offset_; }

 private:
  std::string name_;
  int64_t uid_ = 0;
  std::vector<int64_t> dim_, stride_;
  DataType_t type_ = DataType_t::NOT_SET;
  bool is_output_ = false;
  std::shared_ptr<Tensor_attributes> ragged_offset_;
};
using Tensor = std::shared_ptr<Tensor_attributes>;

// Options of both directions.
struct SDPA_options {
  float scale = 1;
  bool padding = false;
  Tensor seq_len_q, seq_len_kv;
  std::optional<int64_t> right_bound;
  bool stats = false;          // forward
  bool deterministic = false;  // backward
};

template <typename Derived>
class SDPA_setters {
 public:
  Derived& set_name(const std::string& /*name*/) { return self(); }
  Derived& set_attn_scale(float scale) { return options_.scale = scale, self(); }
  Derived& set_padding_mask(bool padding) { return options_.padding = padding, self(); }
  Derived& set_seq_len_q(const Tensor& lengths) { return options_.seq_len_q = lengths, self(); }
  Derived& set_seq_len_kv(const Tensor& lengths) { return options_.seq_len_kv = lengths, self(); }
  Derived& set_diagonal_alignment(DiagonalAlignment_t /*alignment*/) { return self(); }
  Derived& set_diagonal_band_right_bound(int64_t n) { return options_.right_bound = n, self(); }
  const SDPA_options& options() const { return options_; }

 protected:
  Derived& self() { return static_cast<Derived&>(*this); }
  SDPA_options options_;
};

class SDPA_attributes : public SDPA_setters<SDPA_attributes> {
 public:
  SDPA_attributes& set_generate_stats(bool stats) { return options_.stats = stats, *this; }
};

class SDPA_backward_attributes : public SDPA_setters<SDPA_backward_attributes> {
 public:
  SDPA_backward_attributes& set_deterministic_algorithm(bool deterministic) {
    return options_.deterministic = deterministic, *this;
  }
};

// A graph of one attention operation, the only kind supported here.
class Graph {
 public:
  Graph& set_io_data_type(DataType_t type) { return io_type_ = type, *this; }
  Graph& set_intermediate_data_type(DataType_t /*type*/) { return *this; }
  Graph& set_compute_data_type(DataType_t /*type*/) { return *this; }

  Tensor tensor(const Tensor_attributes& attributes) {
    return std::make_shared<Tensor_attributes>(attributes);
  }
  std::array<Tensor, 2> sdpa(Tensor q, Tensor k, Tensor v, const SDPA_attributes& attributes);
  std::array<Tensor, 3> sdpa_backward(Tensor q, Tensor k, Tensor v, Tensor out, Tensor d_out,
                                      Tensor stats, const SDPA_backward_attributes& attributes);

  error_t build(cudnnHandle_t handle, const std::vector<HeurMode_t>& modes);
  error_t get_workspace_size(int64_t& bytes) const;
  error_t execute(cudnnHandle_t handle, std::unordered_map<int64_t, void*>& tensors,
                  void* workspace) const;

 private:
  error_t check() const;
  std::vector<Tensor> operands() const;

  DataType_t io_type_ = DataType_t::NOT_SET;
  SDPA_options options_;
  bool backward_ = false, built_ = false;
  Tensor q_, k_, v_, out_, stats_, d_out_, d_q_, d_k_, d_v_;
};

}  // namespace graph
}  // namespace cudnn_frontend
// NOLINTEND(readability-identifier-naming)
