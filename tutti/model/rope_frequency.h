// Frequencies of rotary positions.
#pragma once

#include <vector>

#include "tutti/spec/model/config.h"

namespace tutti::model {

// Inverse frequencies of rotary embedding [head_dim / 2], theta^(-2i/D), with Llama 3.1's
// scaling of low frequencies where the model has it.
std::vector<float> rope_frequencies(const spec::ModelConfig& model);

}  // namespace tutti::model
