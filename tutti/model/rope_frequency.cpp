#include "tutti/model/rope_frequency.h"

#include <algorithm>
#include <cmath>

namespace tutti::model {
namespace {

using spec::RopeScaling;

// Llama 3.1's rule: wavelengths shorter than original_context / high_frequency_factor are kept,
// longer than original_context / low_frequency_factor are stretched by `factor`; in between the two
// are blended linearly in context / wavelength.
double llama3_frequency(const RopeScaling& scaling, double frequency) {
  const double turns = static_cast<double>(scaling.original_context) * frequency / (2 * M_PI);
  const double blend = (turns - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor);
  const double keep = std::clamp(blend, 0.0, 1.0);
  return keep * frequency + (1 - keep) * frequency / scaling.factor;
}

// The pair, as a real number, whose frequency makes `turns` turns in the original context (Peng et
// al. 2023, arXiv:2309.00071, section 3.2).
double pair_of(const RopeScaling& scaling, double theta, double dims, double turns) {
  const double context = static_cast<double>(scaling.original_context);
  return dims * std::log(context / (turns * 2 * M_PI)) / (2 * std::log(theta));
}

// The kept share is 1 up to the pair of fast_turns and 0 from the pair of slow_turns on, both
// rounded outwards unless the model disables that.
double yarn_frequency(const RopeScaling& scaling, double theta, double dims, double pair,
                      double frequency) {
  const double fast = pair_of(scaling, theta, dims, scaling.fast_turns);
  const double slow = pair_of(scaling, theta, dims, scaling.slow_turns);
  const double low = std::max(0.0, scaling.rounded ? std::floor(fast) : fast);
  double high = std::min(dims - 1, scaling.rounded ? std::ceil(slow) : slow);
  if (low == high) high += 0.001;
  const double slowed = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  return slowed * frequency / scaling.factor + (1 - slowed) * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const spec::ModelConfig& model, bool window_rope) {
  std::vector<float> out;
  const RopeScaling& scaling = model.rope_scaling;
  const double theta = window_rope ? model.window_rope_theta : model.rope_theta;
  const auto dims = static_cast<double>(spec::rotated_dims(model));
  for (int64_t i = 0; i < spec::rotated_dims(model) / 2; ++i) {
    const auto pair = static_cast<double>(i);
    double frequency = std::pow(theta, -2.0 * pair / dims);
    if (scaling.factor != 1 && !window_rope) {
      switch (scaling.kind) {
        case spec::RopeScalingKind::llama3: frequency = llama3_frequency(scaling, frequency); break;
        case spec::RopeScalingKind::linear: frequency /= scaling.factor; break;
        case spec::RopeScalingKind::yarn:
          frequency = yarn_frequency(scaling, theta, dims, pair, frequency);
          break;
      }
    }
    out.push_back(static_cast<float>(frequency));
  }
  return out;
}

float rope_amplitude(const spec::ModelConfig& model, bool window_rope) {
  const RopeScaling& scaling = model.rope_scaling;
  if (window_rope || scaling.kind != spec::RopeScalingKind::yarn || scaling.factor == 1) return 1;
  return static_cast<float>(scaling.amplitude > 0 ? scaling.amplitude
                                                  : 0.1 * std::log(scaling.factor) + 1);
}

}  // namespace tutti::model
