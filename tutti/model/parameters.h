// Views of the parameters in the flat arenas: weights in the compute type, gradients in f32.
#pragma once

#include <array>
#include <functional>
#include <string_view>

#include "tutti/comm/group.h"
#include "tutti/engine/decode_ops.h"
#include "tutti/engine/narrow_ops.h"
#include "tutti/engine/tensor.h"
#include "tutti/spec/model/params.h"

namespace tutti::model {

// One low-rank adapter of a linear layer, over its outputs [first_row, first_row + b.rows).
struct AdapterWeights {
  engine::Matrix a;       // [r, in] c
  engine::Matrix b;       // [rows, r] c
  engine::Matrix d_a;     // [r, in] f32
  engine::Matrix d_b;     // [rows, r] f32
  int64_t first_row = 0;  // of this rank's outputs
};

// The adapters of a linear layer, and their memory, which the layer's owner binds.
struct Adapters {
  std::array<AdapterWeights, 3> list;
  size_t count = 0;
  float scale = 1;
  uint64_t dropout_key = 0;
  engine::Matrix
      low_rank;  // [N, count * r] c: scale * dropout(x) A^T of each, kept for the backward pass
  engine::Matrix d_low_rank;  // [N, count * r] c
  engine::Matrix input;       // [N, >= in] c: the input after dropout; empty without dropout
};

// How the products of a linear layer round their operands to fewer than 16 bits
// (spec/program/narrow.h), and where: `left` and `right` are the buffers of spec::narrow_buffers,
// which all layers share.
struct NarrowProducts {
  NarrowKind operand = NarrowKind::e4m3;   // of activations and weights
  NarrowKind gradient = NarrowKind::e5m2;  // of dy
  bool stochastic = false;                 // dy
  uint64_t key = 0;                        // of its random numbers
  engine::Vector left;                     // u8; empty: products are in the compute type
  engine::Vector right;
  // This layer's buffer of the dy that the weight gradient reads, written by backward_input. Empty:
  // dy is quantized for each product.
  engine::Vector turned = {};
  // This layer's buffers of the weight that the products for y and dx read, written by
  // quantize_weight() (narrow_weights.h). Empty: the weight is quantized for each product.
  engine::Vector weight = {};
  engine::Vector weight_turned = {};

  explicit operator bool() const { return bool(left); }
};

// Views of one linear layer, y = x W^T + b. Gradient views are empty without training, or if the
// parameter is frozen. Tensor parallel ranks split the outputs or the inputs.
struct Linear {
  engine::Matrix weight;  // [out, in] c; with `packed` its shape alone
  // For inference: the weight in fewer bits (inference_weights.h). Of E experts the first one's
  // [out, in], the others behind it.
  engine::PackedMatrix packed;
  engine::Vector bias;      // [out] c, may be empty
  engine::Matrix d_weight;  // [out, in] f32
  engine::Vector d_bias;    // [out] f32
  Adapters adapters;
  NarrowProducts narrow;
  float alpha = 1;  // y = alpha x W^T, without a bias, adapters or `narrow`
  // For inference: a few rows at a time are multiplied at the bandwidth of reading the weight
  // (decode_ops.h).
  bool decodes = false;
  // Row-parallel: this rank has a part of the inputs, and y is to be summed over these ranks. The
  // first rank adds the bias; each contributes the bias gradient of its own rows
  // (tensor_parallel.h).
  comm::Group* summed_over = nullptr;

  bool trains() const { return d_weight || adapters.count > 0; }
};

struct NormWeights {
  engine::Vector weight;    // [H] c
  engine::Vector bias;      // [H] c, may be empty
  engine::Vector d_weight;  // [H] f32
  engine::Vector d_bias;    // [H] f32
};

// The experts of a packed parameter are stored one after another.
inline constexpr int64_t kPackedAlignment = 64;
inline int64_t packed_bytes(const engine::PackedMatrix& one) {
  return (one.layout().bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}
inline engine::PackedMatrix packed_expert(engine::PackedMatrix first, int64_t expert) {
  first.data = static_cast<char*>(first.data) + expert * packed_bytes(first);
  return first;
}

// Address of a parameter's first element; null if it is not in memory.
using ParamAddress = std::function<void*(const spec::PlacedParam&)>;
// The same for packed parameters; an empty matrix for a parameter that is not packed.
using PackedAddress = std::function<engine::PackedMatrix(const spec::PlacedParam&)>;

class Parameters {
 public:
  // weights has layout.elements elements, gradients layout.trainable_elements; gradients may be
  // null (no training).
  Parameters(const spec::ParamLayout& layout, void* weights, DType compute, float* gradients);
  // The same for parameters at any addresses.
  Parameters(const spec::ParamLayout& layout, ParamAddress weights, DType compute,
             ParamAddress gradients, PackedAddress packed = {});

  // With vocabulary padding the matrix includes the padded rows. The weights of E experts [E, out,
  // in] are one matrix with E * out rows.
  Linear linear(std::string_view name) const;  // name.weight and, where present, name.bias
  NormWeights norm(std::string_view name) const;
  engine::Matrix weight(std::string_view name) const;        // of a packed one its shape alone
  engine::PackedMatrix packed(std::string_view name) const;  // empty where it is not packed
  engine::Matrix gradient(std::string_view name) const;
  bool has(std::string_view name) const;
  // The adapters of a projection of a block ("blocks.3."), without their memory; may be none.
  Adapters adapters(const std::string& prefix, const spec::ModelConfig& model,
                    spec::Projection projection) const;
  const spec::LoraConfig& lora() const { return layout_.lora; }

 private:
  const spec::PlacedParam* find(std::string_view name) const;
  const spec::PlacedParam& get(std::string_view name) const;
  int64_t first_output(const std::string& prefix, const spec::ModelConfig& model,
                       const spec::Adapter& adapter) const;

  spec::ParamLayout layout_;
  ParamAddress weights_;
  DType compute_;
  ParamAddress gradients_;
  PackedAddress packed_;
};

}  // namespace tutti::model
