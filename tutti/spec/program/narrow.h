// Number formats below 16 bits as matrix products read them (base/narrow_format.h has the formats):
//
//   fp8     E4M3 (gradients E5M2), one f32 scale per tensor: 1 byte
//   mxfp8   E4M3, one byte (E8M0) per 32 elements: 33/32 bytes (OCP Microscaling Formats 1.0)
//   fp4     NVFP4: E2M1, one byte (E4M3) per 16 elements: 9/16 bytes (NVIDIA, arXiv 2509.25149)
//
// Every product of a block (projections and experts; not the router, adapters or attention) reads
// both operands in the format, but those of the blocks that NarrowConfig keeps wide; with it also
// the head's. Sums, weights, master weights, moments and kept activations stay as in bf16.
//
// Profile tutti quantizes both operands of a product right before it, into two places of the
// workspace (narrow_room), from what lies there in 16 bits: so nothing else is kept, whatever is
// recomputed, delayed or gathered meanwhile. A tensor that has one scale is one operand: all rows
// of a micro-batch on this rank.
//
// On accelerators in fp8 weights are the exception (Profile::quantizes_weights_once): each is
// quantized straight and transposed before its first product of a step, or of an evaluation, and
// both lie in arena "narrow" until weights change, two bytes per weight. Frozen ones
// (spec/recipe/lora.h) are quantized once, when they are set. The largest magnitudes of activations
// and gradients are found by the kernels that make them, or by the first to quantize them, and kept
// for the others.
//
// The others quantize a tensor twice at once, for the product that needs its rows and the one that
// needs its columns: activations before the forward product, gradients of outputs before that of
// inputs, weights once a step; this is described for mxfp8 and fp4, while fp8's is described in 16
// bits otherwise: what quantizing costs is part of the rate fitted for it.
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
// What products read with mxfp8 and fp4; nullptr otherwise.
const NarrowFormat* block_scaled_format(Precision precision);

// Of an element that products of `precision` read, scales included; 2 from 16 bits on.
double operand_bytes(Precision precision);
// Activations and weights; gradients of outputs. `precision` is narrow.
NarrowKind operand_kind(Precision precision);
NarrowKind gradient_kind(Precision precision);

// How a device multiplies operands of `precision` that its matrix units do not take, in a line for
// people; empty where they do, and from 16 bits on. `architecture` as engine::DeviceInfo has it.
std::string emulation_note(Precision precision, const std::string& device,
                           const std::string& architecture);

// [rows, columns] of 16 bits to both copies.
Op quantize_op(const NarrowFormat& format, int64_t rows, int64_t columns);

// Gives the products marked Op::narrow the format's bytes; with `left`, each is preceded by the
// quantization of its left operand (activations or gradients).
void describe_narrow(const NarrowFormat& format, bool left, std::vector<Op>& ops);

// Of profile tutti: each product marked Op::narrow becomes the quantization of both operands and
// the narrow product. Which of the three products of y = x W^T says what is transposed. What is
// quantized once for all products that read it: `gradients` of outputs, straight and transposed,
// with the product of the input's gradient (Profile::quantizes_gradients_once); `weights` at
// another time (weight_quantization).
enum class LinearProduct { forward, input, weight };
struct QuantizedOnce {
  bool gradients = false;
  bool weights = false;
};
void quantize_operands(Precision precision, LinearProduct product, QuantizedOnce once,
                       std::vector<Op>& ops);

// A weight of narrow products as this rank has it, [out, in], under its name in arena "narrow".
struct NarrowWeight {
  const char* name;
  int64_t out = 0;
  int64_t in = 0;
};
// Those of a block: attention.qkv, attention.output, mlp.up, mlp.down; and of the head.
std::array<NarrowWeight, 4> block_weights(const ModelConfig& model, const LocalSizes& sizes);
NarrowWeight head_weight(const ModelConfig& model, const LocalSizes& sizes);
// Blocks on pipeline rank `stage` whose products are narrow, and whether its head's are.
int64_t narrow_blocks(const Recipe& recipe, int64_t stage);
bool has_narrow_head(const Recipe& recipe, int64_t stage);

// With Profile::quantizes_weights_once, what that takes in a step of `layer` (a block, or the head:
// spec/mesh/zero_layers.h numbers them); nothing for frozen weights.
std::vector<Op> weight_quantization(const Recipe& recipe, const Profile& profile, int64_t layer);

// Bytes of the workspace's places for the left and right operands of any product; 0 where none is
// narrow. With Profile::quantizes_gradients_once also those of the transposed gradients of a
// block's outputs, from one pass to the next.
struct NarrowRoom {
  int64_t left = 0;
  int64_t right = 0;
  int64_t turned_qkv = 0, turned_output = 0, turned_up = 0, turned_down = 0;
};
NarrowRoom narrow_room(const Recipe& recipe, const Profile& profile);

// The parameters of `table` that are quantized: matrices of blocks but routers and adapters.
ParamTable narrow_parameters(const ParamTable& table);

}  // namespace tutti::spec
