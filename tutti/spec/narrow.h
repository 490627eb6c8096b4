// Number formats below 16 bits as matrix products read them: blocks of elements share a scale.
//
//   fp8     E4M3 (gradients E5M2), one f32 scale per tensor: 1 byte. Described in 16 bits
//           otherwise; what quantizing costs is part of the rate fitted for it
//   mxfp8   E4M3, one byte (E8M0) per 32 elements: 33/32 bytes (OCP Microscaling Formats 1.0)
//   fp4     NVFP4: E2M1, one byte (E4M3) per 16 elements: 9/16 bytes (NVIDIA, arXiv 2509.25149)
//
// With mxfp8 and fp4 every product of a block (projections and experts; not the router, adapters,
// attention or the head) reads both operands in the format. Scales lie along the inner dimension,
// so each tensor is quantized twice, for the product that needs its rows and the one that needs its
// columns: activations before the forward product, gradients of outputs before that of inputs,
// weights once a step. Sums, weights, master weights, moments and kept activations stay as in bf16.
#pragma once

#include <vector>

#include "tutti/spec/operation.h"
#include "tutti/spec/params.h"
#include "tutti/spec/recipe.h"

namespace tutti::spec {

struct NarrowFormat {
  const char* name;
  double element_bits;
  int64_t block_elements;  // that share a scale; 0: the tensor
  double scale_bits;

  double element_bytes() const {  // scales included
    const double scale = block_elements > 0 ? scale_bits / static_cast<double>(block_elements) : 0;
    return (element_bits + scale) / 8;
  }
};

bool is_narrow(Precision precision);
// What products read with mxfp8 and fp4; nullptr otherwise.
const NarrowFormat* block_scaled_format(Precision precision);

// [rows, columns] of 16 bits to both copies.
Op quantize_op(const NarrowFormat& format, int64_t rows, int64_t columns);

// Gives the products marked Op::narrow the format's bytes; with `left`, each is preceded by the
// quantization of its left operand (activations or gradients).
void describe_narrow(const NarrowFormat& format, bool left, std::vector<Op>& ops);

// The parameters of `table` that are quantized: matrices of blocks but routers and adapters.
ParamTable narrow_parameters(const ParamTable& table);

}  // namespace tutti::spec
