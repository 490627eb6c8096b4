// An axis: range, scale and ticks.
#pragma once

#include <string>
#include <vector>

#include "tutti/report/format.h"

namespace tutti::report {

enum class Scale { linear, logarithmic };

struct Tick {
  double at = 0;  // 0 at the low end, 1 at the high end
  std::string label;
};

struct Axis {
  Scale scale = Scale::linear;
  double low = 0;
  double high = 1;
  double position(double value) const;  // 0 to 1 within [low, high]
};

// An axis that holds all finite `values` with a small margin; only positive ones when logarithmic.
// `from_zero` extends a linear axis to zero, and leaves no margin there. Without usable values it
// is [0, 1], or [0.1, 1].
Axis make_axis(Scale scale, const std::vector<double>& values, bool from_zero);

// At most about `most` ticks at round numbers: 1, 2, 2.5 or 5 times a power of ten; for seconds
// also minutes, hours and days.
std::vector<Tick> make_ticks(const Axis& axis, Quantity quantity, int most);

}  // namespace tutti::report
