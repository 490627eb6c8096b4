// Sine and cosine for rope.cu (the same series as cpu/rope.cpp, which explains why they are f64).
#pragma once

#include <cmath>
#include <cstdint>

#include "tutti/engine/host_device.h"

namespace tutti::engine {

struct SineCosine {
  float sine, cosine;
};

// For |angle| below 2^30: reduced to [-pi/4, pi/4], where the series are truncated when the next
// term is below 2e-9.
TUTTI_HOST_DEVICE inline SineCosine sine_cosine(double angle) {
  const double turns = rint(angle * 0.63661977236758134);
  const double r = fma(-turns, 1.5707963267948966, angle);
  const double r2 = r * r;
  double s = 1.0 / 362880;
  s = fma(s, r2, -1.0 / 5040);
  s = fma(s, r2, 1.0 / 120);
  s = fma(s, r2, -1.0 / 6);
  s = fma(s * r2, r, r);
  double c = -1.0 / 3628800;
  c = fma(c, r2, 1.0 / 40320);
  c = fma(c, r2, -1.0 / 720);
  c = fma(c, r2, 1.0 / 24);
  c = fma(c, r2, -0.5);
  c = fma(c, r2, 1.0);
  const auto quadrant = static_cast<int64_t>(turns) & 3;
  const double sine = (quadrant & 1) != 0 ? c : s;
  const double cosine = (quadrant & 1) != 0 ? s : c;
  return {static_cast<float>((quadrant & 2) != 0 ? -sine : sine),
          static_cast<float>(((quadrant + 1) & 2) != 0 ? -cosine : cosine)};
}

}  // namespace tutti::engine
