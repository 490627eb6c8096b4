// Number formats below 16 bits as operands of matrix products (base/narrow_format.h defines the
// formats):
//
//   fp8     E4M3 (gradients E5M2), one f32 scale per tensor: 1 byte
//   mxfp8   E4M3, one byte (E8M0) per 32 elements: 33/32 bytes (OCP Microscaling Formats 1.0)
//   fp4     NVFP4: E2M1, one byte (E4M3) per 16 elements: 9/16 bytes (NVIDIA, arXiv 2509.25149)
//
// Every product of a block (projections and experts; not the router, adapters or attention) reads
// both operands in the format, except in the blocks that NarrowConfig keeps wide; optionally the
// head's product does, too. Sums, weights, master weights, moments and kept activations stay as in
// bf16.
//
// Profile tutti quantizes both operands of a product right before it, from their 16-bit tensors
// into two buffers of the workspace (narrow_buffers): nothing else is kept, whatever is recomputed,
// delayed or gathered in between. A tensor with a single scale is one operand: all rows of a
// micro-batch on this rank.
//
// Weights in fp8 on accelerators are the exception (Profile::quantizes_weights_once): each is
// quantized, straight and transposed, before its first product of a step or of an evaluation, and
// both copies stay in arena "narrow" until weights change, two bytes per weight. Frozen weights
// (spec/recipe/lora.h) are quantized once, when they are set. The largest magnitudes of activations
// and gradients are computed by the kernels that produce the tensors, or by the first that
// quantizes them, and kept for the others.
//
// The other profiles quantize a tensor once into two copies, for the product that needs its rows
// and the one that needs its columns: activations before the forward product, gradients of outputs
// before the product for the input's gradient, weights once a step. This is described for mxfp8 and
// fp4; fp8 is otherwise described as in 16 bits, because the cost of quantization is part of its
// fitted rate.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tutti/base/narrow_format.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/program/operation.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

bool is_narrow(Precision precision);
// The format that products read with mxfp8 and fp4; nullptr otherwise.
const NarrowFormat* block_scaled_format(Precision precision);

// Bytes of an element that products of `precision` read, scales included; 2 from 16 bits on.
double operand_bytes(Precision precision);
// Formats of activations and weights, and of gradients of outputs. `precision` is narrow.
NarrowKind operand_kind(Precision precision);
NarrowKind gradient_kind(Precision precision);

// A message for users: how a device multiplies operands of `precision` that its matrix units do not
// support; empty if they do, and from 16 bits on. `architecture` is that of engine::DeviceInfo.
std::string emulation_note(Precision precision, const std::string& device,
                           const std::string& architecture);

// Quantizes [rows, columns] of 16 bits into both copies.
Op quantize_op(const NarrowFormat& format, int64_t rows, int64_t columns);

// Sets the bytes of products marked Op::narrow to the format's; with `left`, each is preceded by
// the quantization of its left operand (activations or gradients).
void describe_narrow(const NarrowFormat& format, bool left, std::vector<Op>& ops);

// In profile tutti: each product marked Op::narrow becomes the quantization of both operands and
// the narrow product. Which of the three products of y = x W^T it is determines what is transposed.
// Some operands are quantized once for all products that read them: `gradients` of outputs,
// straight and transposed, with the product for the input's gradient
// (Profile::quantizes_gradients_once); `weights` separately (weight_quantization).
enum class LinearProduct { forward, input, weight };
struct QuantizedOnce {
  bool gradients = false;
  bool weights = false;
};
void quantize_operands(Precision precision, LinearProduct product, QuantizedOnce once,
                       std::vector<Op>& ops);

// This rank's part of a weight of narrow products, [out, in], with its name in arena "narrow".
struct NarrowWeight {
  const char* name;
  int64_t out = 0;
  int64_t in = 0;
};
// The weights of a block: attention.qkv, attention.output, mlp.up, mlp.down; and of the head.
std::array<NarrowWeight, 4> block_weights(const ModelConfig& model, const LocalSizes& sizes);
NarrowWeight head_weight(const ModelConfig& model, const LocalSizes& sizes);
// Blocks on pipeline rank `stage` with narrow products, and whether its head's product is narrow.
int64_t narrow_blocks(const Recipe& recipe, int64_t stage);
bool has_narrow_head(const Recipe& recipe, int64_t stage);

// With Profile::quantizes_weights_once: the quantization per step of the weights of `layer` (a
// block, or the head: spec/mesh/zero_layers.h numbers them); nothing for frozen weights.
std::vector<Op> weight_quantization(const Recipe& recipe, const Profile& profile, int64_t layer);

// Bytes of the workspace's buffers for the left and right operands of any product; 0 if none is
// narrow. With Profile::quantizes_gradients_once also of the transposed gradients of a block's
// outputs, which are kept from one pass to the next.
struct NarrowBuffers {
  int64_t left = 0;
  int64_t right = 0;
  int64_t turned_qkv = 0, turned_output = 0, turned_up = 0, turned_down = 0;
};
NarrowBuffers narrow_buffers(const Recipe& recipe, const Profile& profile);

// The parameters of `table` that are quantized: matrices of blocks except routers and adapters.
ParamTable narrow_parameters(const ParamTable& table);

}  // namespace tutti::spec
