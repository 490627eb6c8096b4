// RoPE frequencies.
#pragma once

#include <vector>

#include "tutti/spec/model/config.h"

namespace tutti::model {

// Inverse frequencies of RoPE [R / 2], theta^(-2i/R), for R rotated columns of a head, with the
// model's scaling. With window_rope those of layers with a window: with their own theta, without
// scaling.
std::vector<float> rope_frequencies(const spec::ModelConfig& model, bool window_rope = false);

// Multiplier of rotated queries and keys (yarn), else 1.
float rope_amplitude(const spec::ModelConfig& model, bool window_rope = false);

}  // namespace tutti::model
