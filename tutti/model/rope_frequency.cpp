#include "tutti/model/rope_frequency.h"

#include <algorithm>
#include <cmath>

namespace tutti::model {

// Llama 3.1's rule: wavelengths shorter than original_context / high_frequency_factor stay,
// longer than original_context / low_frequency_factor are slowed by `factor`, between them the
// two are blended linearly in context / wavelength.
std::vector<float> rope_frequencies(const spec::ModelConfig& model) {
  std::vector<float> out;
  const spec::RopeScaling& scaling = model.rope_scaling;
  for (int64_t i = 0; i < model.head_dim / 2; ++i) {
    double frequency = std::pow(
        model.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(model.head_dim));
    if (scaling.factor != 1) {
      const double turns = static_cast<double>(scaling.original_context) * frequency / (2 * M_PI);
      const double blend = (turns - scaling.low_frequency_factor) /
                           (scaling.high_frequency_factor - scaling.low_frequency_factor);
      const double keep = std::clamp(blend, 0.0, 1.0);
      frequency = keep * frequency + (1 - keep) * frequency / scaling.factor;
    }
    out.push_back(static_cast<float>(frequency));
  }
  return out;
}

}  // namespace tutti::model
