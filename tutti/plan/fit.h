// Fits constants to measurements: for each group of rows that shares a chip generation and a
// software, the values that minimise the mean absolute logarithm of predicted over measured time
// (smoothed near zero) by least squares over bounded variables (least_squares.h). Weak penalties
// keep constants that no row depends on at the starting values, and tie constants that a single
// cause moves together (products in 16, 8 and 4 bits, attention) to each other.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tutti/plan/validate.h"

namespace tutti::plan {

struct FitOptions {
  int rounds = 8;       // of Levenberg-Marquardt
  double turn = 0.03;   // error size at which the loss turns from quadratic to linear
  double pull = 0.002;  // weight of the squared distance to the starting values, per constant
  // Weight of the squared distance of a family's constants from the common ones; 0: families have
  // no constants of their own.
  double apart = 0;
  double family_apart = 8e-3;  // the same if families are pooled
  // Further weight, divided by the rows of a set, of the squared distance to its family's values.
  double family_pull = 0.05;
  int threads = 0;  // for held-out groups (in_parallel.h); 0: all cores
};

struct FitReport {
  std::string group;
  int64_t rows = 0;
  double mape_before = 0;
  double mape_after = 0;  // on the rows fitted on
};

// Fits one set to `rows` (only time metrics), starting from `start`; constants that no row of the
// group determines keep their values. Families of software are weighted by the square root of their
// rows. With `apart` every family also has constants of its own, held near the common ones, which
// are returned: a peculiarity of one family (its attention kernel, say) then does not affect all.
Constants fit_constants(const std::vector<const PreparedRow*>& rows, const Constants& start,
                        const FitOptions& options = {});

// What to expect of software without rows of its own: any/any fitted on all `rows` (of time), and
// GENERATION/any, which starts there, for each generation among them (only `wanted`; empty: all).
std::vector<Constants> fit_pooled(const std::vector<const PreparedRow*>& rows,
                                  const FitOptions& options,
                                  const std::set<std::string>& wanted = {});

// One set per group of the rows marked in `fitted`. A family, the versions of one software on all
// chips ("bridge" of bridge-25.11), is fitted first from the assumed values; each of its groups
// then starts there, and is held there more strongly the fewer rows it has. Only groups named in
// `wanted` are fitted; empty: all. `progress` receives the finished and total steps; an exception
// from it ends the fit.
std::vector<Constants> fit_groups(const std::vector<PreparedRow>& rows,
                                  const std::vector<bool>& fitted, const FitOptions& options,
                                  std::vector<FitReport>* reports,
                                  const std::function<void(int64_t, int64_t)>& progress,
                                  const std::set<std::string>& wanted = {});

}  // namespace tutti::plan
