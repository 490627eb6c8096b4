// The interval that predictions state, from errors on held-out rows.
//
// A step is its products, whose rates are known best, and the rest: memory-bound operations,
// exposed communication, the pipeline's bubble, the host. If the relative errors of both are
// independent, that of a step with a share p of products is
//   sigma^2 = (p sigma_products)^2 + ((1 - p) sigma_rest)^2
// so that the interval is wider, the smaller the share of products.
#pragma once

#include <vector>

namespace tutti::plan {

struct StepError {
  double log_error = 0;       // of measured over predicted time
  double products_share = 1;  // p
  double weight = 1;
};

// sigma_rest over sigma_products, from 1 to 10: the two variances that best explain the squares of
// the errors (weighted least squares); errors beyond kAssumedInterval count as kAssumedInterval. 0,
// unknown, if all steps have the same share.
double estimate_rest_ratio(const std::vector<StepError>& errors);

// sigma over sigma_products; 1 if `rest_ratio` is 0.
double error_growth(double rest_ratio, double products_share);

// For steps of products alone: 80% of the weight of `errors` is within plus or minus this value,
// times the growth of each. kAssumedInterval if there are none.
double interval_of(const std::vector<StepError>& errors, double rest_ratio);

}  // namespace tutti::plan
