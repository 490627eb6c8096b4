// Low-rank adapters (LoRA, Hu et al. 2021): a frozen projection W with a trained correction,
//   y = x W^T + b + (alpha / rank) * dropout(x) A^T B^T,    A [rank, in], B [rows, rank].
// Every block has the same adapters. An adapter covers all output rows of its projection, or a
// range of them (the query rows of the fused query-key-value projection). The adapters of one
// projection see the same dropped x.
//
// Targets: qkv (one adapter over the fused rows), or query, key, value (one each); output; mlp (all
// of the following), mlp.up, mlp.gate (swiglu), mlp.down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/spec/model/config.h"

namespace tutti::spec {

struct LoraConfig {
  bool operator==(const LoraConfig&) const = default;
  int64_t rank = 0;                  // 0: no adapters; every parameter is trained
  double alpha = 0;                  // 0: 2 * rank
  double dropout = 0;                // of the adapters' input
  std::vector<std::string> targets;  // empty: qkv, output

  bool enabled() const { return rank > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
};

struct Adapter {
  std::string name;  // "attention.query": its tensors are NAME.lora_a.weight, NAME.lora_b.weight
  Projection projection = Projection::qkv;
  int64_t first_row = 0;  // of the projection's outputs
  int64_t rows = 0;
};

// Of one block, in forward order; empty without adapters.
std::vector<Adapter> adapters(const ModelConfig& model, const LoraConfig& lora);

// The parameter that a projection is: "attention.qkv", ..., "mlp.gate_up" for swiglu.
const char* projection_name(const ModelConfig& model, Projection projection);
int64_t projection_inputs(const ModelConfig& model, Projection projection);
int64_t projection_outputs(const ModelConfig& model, Projection projection);

// rank x the number of adapters of a projection: the width of what they save per token.
int64_t adapter_columns(const ModelConfig& model, const LoraConfig& lora, Projection projection);

// The first projection of a block that has an adapter: nothing below the one of block 0 needs a
// gradient. There must be adapters.
Projection lowest_projection(const ModelConfig& model, const LoraConfig& lora);

// Fills in the defaults.
void resolve(LoraConfig& lora);

// Throws usage naming the first impossible value of a resolved configuration: unknown, doubled or
// overlapping targets, targets that the model lacks.
void validate(const LoraConfig& lora, const ModelConfig& model);

}  // namespace tutti::spec
