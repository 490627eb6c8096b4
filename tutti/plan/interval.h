// The interval that predictions state, from errors that were measured on rows left out.
//
// A step is its products, whose rates are known best, and the rest: operations bound by memory,
// exposed communication, the pipeline's bubble, the host. Where the relative errors of both are
// independent, that of a step whose products take the share p is
//   sigma^2 = (p sigma_products)^2 + ((1 - p) sigma_rest)^2
// so that the interval is the wider, the less of a step is products.
#pragma once

#include <vector>

namespace tutti::plan {

struct StepError {
  double log_error = 0;       // of measured over predicted time
  double products_share = 1;  // p
  double weight = 1;
};

// sigma_rest over sigma_products, from 1 to 10: the two variances that explain the squares of the
// errors best (weighted least squares), where an error beyond kAssumedInterval counts as that.
// 0, unknown, where all steps have the same share.
double estimate_rest_ratio(const std::vector<StepError>& errors);

// sigma over sigma_products; 1 where `rest_ratio` is 0.
double error_growth(double rest_ratio, double products_share);

// Of steps that are products alone: 80% of the weight of `errors` is within plus or minus this,
// times the growth of each. kAssumedInterval where there are none.
double interval_of(const std::vector<StepError>& errors, double rest_ratio);

}  // namespace tutti::plan
