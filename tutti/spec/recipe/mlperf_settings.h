// The hyperparameters that the log of an MLPerf run states, as the recipe has them.
//
// Keys and meanings: mlcommons/logging, mllog/constants.py and compliance_checker/training_*/; the
// values are never declared a second time, so a log cannot say what the run does not do. A log
// holds all of them, whichever the benchmark asks for: further keys are legal.
//
// One benchmark reads differently than the others: gpt3 calls its optimizer adam (it is AdamW, as
// everywhere here), counts decay steps from step 0 of the schedule, and progress in tokens
// (epoch_num); the others count decay steps from the end of the warm-up and progress in samples.
//
// moe_aux_loss_coeff is that of Megatron-LM, model.moe.balance_loss * top_k / routed layers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

// Key and value, in the order of the log; of a resolved recipe.
std::vector<std::pair<std::string, Json>> mlperf_settings(const Recipe& recipe);

// submission_org, submission_division, ...; `machine` stands for mlperf.platform where it is empty.
std::vector<std::pair<std::string, Json>> mlperf_submission(const Recipe& recipe,
                                                            const std::string& machine);

// The metadata that say how far a run is after `samples`: samples_count, and epoch_num in the
// benchmark's unit (tokens of gpt3, else samples).
Json mlperf_progress(const Recipe& recipe, int64_t samples);

}  // namespace tutti::spec
