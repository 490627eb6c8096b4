// Views of the parameters in the flat arenas: weights in the compute type, gradients in f32.
#pragma once

#include <string_view>

#include "tutti/engine/tensor.h"
#include "tutti/spec/params.h"

namespace tutti::model {

// Views of one linear layer, y = x W^T + b. Gradient views are empty when nothing is trained.
struct Linear {
  engine::Matrix weight;    // [out, in] c
  engine::Vector bias;      // [out] c, may be empty
  engine::Matrix d_weight;  // [out, in] f32
  engine::Vector d_bias;    // [out] f32
};

struct NormWeights {
  engine::Vector weight;    // [H] c
  engine::Vector bias;      // [H] c, may be empty
  engine::Vector d_weight;  // [H] f32
  engine::Vector d_bias;    // [H] f32
};

class Parameters {
 public:
  // The flat arrays have layout.elements elements each; gradients may be null (no training).
  Parameters(const spec::ParamLayout& layout, void* weights, DType compute, float* gradients);

  // With vocabulary padding the matrix has the padded rows. The weights of E experts [E, out, in]
  // are one matrix of E * out rows.
  Linear linear(std::string_view name) const;  // name.weight and, where present, name.bias
  NormWeights norm(std::string_view name) const;
  engine::Matrix weight(std::string_view name) const;
  engine::Matrix gradient(std::string_view name) const;
  bool has(std::string_view name) const;

 private:
  const spec::PlacedParam* find(std::string_view name) const;
  const spec::PlacedParam& get(std::string_view name) const;
  engine::Matrix view(const spec::PlacedParam& placed, void* base, DType dtype) const;

  spec::ParamLayout layout_;
  void* weights_;
  DType compute_;
  float* gradients_;
};

}  // namespace tutti::model
