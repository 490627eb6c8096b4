#include "tutti/checkpoint/gguf/rope_factors.h"

#include <cmath>
#include <numbers>

namespace tutti::checkpoint {

std::vector<float> llama3_factors(double theta, int64_t head_dim, double factor, double low,
                                  double high, double context) {
  std::vector<float> out;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double frequency =
        1 / std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim));
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength < context / high) {
      out.push_back(1);
    } else if (wavelength > context / low) {
      out.push_back(static_cast<float>(factor));
    } else {
      const double smooth = (context / wavelength - low) / (high - low);
      out.push_back(static_cast<float>(1 / ((1 - smooth) / factor + smooth)));
    }
  }
  return out;
}

}  // namespace tutti::checkpoint
