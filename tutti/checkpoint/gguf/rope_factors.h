// What Llama 3's scaling of RoPE does to each frequency, as GGUF files store it.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::checkpoint {

inline constexpr const char* kGgufRopeFactors = "rope_freqs.weight";
inline constexpr double kGemmaLocalTheta = 10000;  // llama.cpp's constant for layers with a window

// The divisor of every frequency: [head_dim / 2]. Source: transformers' _compute_llama3_parameters.
std::vector<float> llama3_factors(double theta, int64_t head_dim, double factor, double low,
                                  double high, double context);

}  // namespace tutti::checkpoint
