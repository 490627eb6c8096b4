// Constants fitted on measurements: for each group of rows that shares a chip generation and a
// software, the values that minimise the mean absolute logarithm of predicted over measured time,
// by the simplex search of Nelder and Mead (1965) over bounded variables, plus a weak pull towards
// the assumed values that keeps constants nothing depends on where they were.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/plan/validate.h"

namespace tutti::plan {

struct FitOptions {
  int rounds = 6;             // restarts of the simplex from the best point
  int evaluations = 1500;     // in each
  double pull = 0.002;        // weight of the squared distance to where a fit starts, per constant
  double family_pull = 0.05;  // further weight over the rows of a set: of its family's values
};

struct FitReport {
  std::string group;
  int64_t rows = 0;
  double mape_before = 0;
  double mape_after = 0;  // on the rows fitted on
};

// Fits one set on `rows` (time metrics only) starting from `start`; constants that no row of the
// group can tell apart stay.
Constants fit_constants(const std::vector<const PreparedRow*>& rows, const Constants& start,
                        const FitOptions& options = {});

// One set per group of the rows marked in `fitted`. A family, the versions of one software on all
// chips ("bridge" of bridge-25.11), is fitted first from the assumed values; each of its groups
// then starts there, and is held there the more the fewer rows it has. `progress` gets steps done
// and in all, and what it throws ends the fit.
std::vector<Constants> fit_groups(const std::vector<PreparedRow>& rows,
                                  const std::vector<bool>& fitted, const FitOptions& options,
                                  std::vector<FitReport>* reports,
                                  const std::function<void(int64_t, int64_t)>& progress);

}  // namespace tutti::plan
