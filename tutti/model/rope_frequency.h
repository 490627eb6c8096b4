// Frequencies of rotary positions.
#pragma once

#include <vector>

#include "tutti/spec/model/config.h"

namespace tutti::model {

// Inverse frequencies of rotary embedding [R / 2], theta^(-2i/R), where R columns of a head rotate,
// scaled as the model says. With window_rope those of layers with a window: of their own theta,
// without scaling.
std::vector<float> rope_frequencies(const spec::ModelConfig& model, bool window_rope = false);

// What rotated queries and keys are multiplied by (yarn), else 1.
float rope_amplitude(const spec::ModelConfig& model, bool window_rope = false);

}  // namespace tutti::model
