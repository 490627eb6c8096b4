// Floating-point operations of training, in the conventions that published figures use. Every
// figure states its convention; figures of different conventions are not comparable.
//
// Per trained token, multiply-add = 2, forward 1 + backward 2; s: sequence length:
//    causal    6 * (active matrix parameters + head) + 6 L a (d_qk + d_v) s / 2. What the
//              mathematics needs; Tutti's model FLOPs, also Megatron-Bridge's and Llama 3's.
//    square    the same with the full s x s attention: 72 L h^2 (1 + s/6h + V/12Lh) for GPT
//              (Korthikanti et al. 2022, MegaScale)
//    hardware  the same with a second forward pass of the layers (full recomputation):
//              96 L h^2 (1 + s/6h + V/16Lh) for GPT (Narayanan et al. 2021)
// Active matrix parameters: routed experts count top_k times; embeddings are look-ups and count
// nothing; the vocabulary is not padded. Multi-token prediction modules are included.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/spec/model/config.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

inline constexpr const char* kLoraFlopsFormula =
    "4 * (matrix parameters at work, head included) + 6 * layers * heads * head_dim * sequence + 6 "
    "* adapter parameters, less what block 0 needs no gradient for, FLOPs per token (causal half "
    "of attention)";

inline constexpr const char* kTeacherFlopsFormula =
    "; and 2 * (the teacher's matrix parameters at work, head included) + 2 * layers * heads * "
    "head_dim * sequence of its forward pass";

enum class FlopConvention { causal, square, hardware };

inline constexpr const char* kModelFlopsFormula =
    "6 * (matrix parameters at work, head included) + 6 * layers * heads * head_dim * sequence "
    "FLOPs per token (causal half of attention)";

double flops_per_token(const ModelConfig& model, int64_t sequence, FlopConvention convention);

// Convention causal: the numerator of every MFU that Tutti reports.
double model_flops_per_token(const ModelConfig& model, int64_t sequence);
// The forward pass of a recipe's teacher (spec/recipe/distill.h), a third of flops_per_token of its
// model; 0 without a teacher.
double teacher_flops_per_token(const Recipe& recipe, int64_t sequence, FlopConvention convention);
// Of a recipe, including its teacher. With adapters of rank r (spec/recipe/lora.h) frozen weights
// need no gradient, and nothing below the lowest adapter of block 0 needs a backward pass:
//    4 * (active matrix parameters + head) + 6 L a (d_qk + d_v) s / 2 + 6 * adapter parameters
//    minus block 0: 2 * (its projections up to the lowest with adapters), 2 * (that one's A), and
//    4 a (d_qk + d_v) s / 2 where attention is below it.
double model_flops_per_token(const Recipe& recipe);
double model_flops_per_step(const Recipe& recipe);  // of all ranks
// Of `tokens` tokens in documents (or sequences) of lengths s with sum s^2 = squared_lengths: a
// token attends within its document, whatever sequence it was packed into.
double model_flops(const Recipe& recipe, int64_t tokens, int64_t squared_lengths);
std::string model_flops_formula(const Recipe& recipe);

}  // namespace tutti::spec
