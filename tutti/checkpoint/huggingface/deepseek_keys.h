// Keys of config.json that the model types of DeepSeek alone have: latent attention, and how their
// routers score and choose. As in config.h what Tutti cannot compute is refused by name.
#pragma once

#include <string_view>

#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/keys.h"

namespace tutti::checkpoint {

// Of the norms of what is compressed, whatever rms_norm_eps says.
inline constexpr double kLatentEpsilon = 1e-6;

bool is_deepseek(HfFamily family);

// Before the rotation is read (rope_keys.h), whose yarn says how scores are scaled.
void read_latent(HfKeys& keys, const Json& config, spec::ModelConfig& model);
void write_latent(const spec::ModelConfig& model, Json& config);

void read_deepseek_experts(HfKeys& keys, const Json& config, HfFamily family, HfModel& out);
void write_deepseek_experts(const spec::ModelConfig& model, HfFamily family, Json& config);

// Of yarn with latent attention. "mscale_all_dim" M multiplies scores by m^2, m = 0.1 M ln(factor)
// + 1; with "mscale" too, what rotates is multiplied by the ratio of both m.
void read_mscale(HfKeys& keys, spec::ModelConfig& model);
void write_mscale(const spec::ModelConfig& model, Json& scaling);

}  // namespace tutti::checkpoint
