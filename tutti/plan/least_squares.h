// Small non-linear least squares: Levenberg (1944) and Marquardt (1963) with numeric derivatives.
#pragma once

#include <functional>
#include <vector>

namespace tutti::plan {

// Minimises the sum of squared residuals over `start`'s variables, each kept within [least, most].
// `residuals` must return the same number of values at every call. Deterministic.
std::vector<double> fit_least_squares(
    const std::function<std::vector<double>(const std::vector<double>&)>& residuals,
    std::vector<double> start, const std::vector<double>& least, const std::vector<double>& most,
    int rounds = 200);

}  // namespace tutti::plan
