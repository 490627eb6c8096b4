// Constants fitted on measurements: for each group of rows that shares a chip generation and a
// software, the values that minimise the mean absolute logarithm of predicted over measured time
// (smoothed near zero) by least squares over bounded variables (least_squares.h), plus weak pulls
// towards where the fit starts, which keep constants nothing depends on where they were, and of
// constants that one cause moves together (products in 16, 8 and 4 bits, attention) to each other.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tutti/plan/validate.h"

namespace tutti::plan {

struct FitOptions {
  int rounds = 8;       // of Levenberg and Marquardt
  double turn = 0.03;   // of an error, from where on its size counts and not its square
  double pull = 0.002;  // weight of the squared distance to where a fit starts, per constant
  double apart = 0;     // weight of the squared distance of a family's constants from those of
                        // all; 0: families have none of their own
  double family_apart = 8e-3;  // the same where families are pooled
  double family_pull = 0.05;   // further weight over the rows of a set: of its family's values
  int threads = 0;             // for groups that are left out (in_parallel.h); 0: all cores
};

struct FitReport {
  std::string group;
  int64_t rows = 0;
  double mape_before = 0;
  double mape_after = 0;  // on the rows fitted on
};

// Fits one set on `rows` (time metrics only) starting from `start`; constants that no row of the
// group can tell apart stay. Families of software count by the square root of their rows. With
// `apart` every family has constants of its own beside, held near those of all, which are returned:
// what one family does in its own way (its attention kernel, say) does not become everybody's.
Constants fit_constants(const std::vector<const PreparedRow*>& rows, const Constants& start,
                        const FitOptions& options = {});

// What software without rows of its own may expect: any/any fitted on all `rows` (of time), and for
// each generation among them (only `wanted`; empty: all) GENERATION/any, which starts there.
std::vector<Constants> fit_pooled(const std::vector<const PreparedRow*>& rows,
                                  const FitOptions& options,
                                  const std::set<std::string>& wanted = {});

// One set per group of the rows marked in `fitted`. A family, the versions of one software on all
// chips ("bridge" of bridge-25.11), is fitted first from the assumed values; each of its groups
// then starts there, and is held there the more the fewer rows it has. Only the groups `wanted` by
// name are fitted; empty: all. `progress` gets steps done and in all, and what it throws ends the
// fit.
std::vector<Constants> fit_groups(const std::vector<PreparedRow>& rows,
                                  const std::vector<bool>& fitted, const FitOptions& options,
                                  std::vector<FitReport>* reports,
                                  const std::function<void(int64_t, int64_t)>& progress,
                                  const std::set<std::string>& wanted = {});

}  // namespace tutti::plan
