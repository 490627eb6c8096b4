// What `tutti plan serve` knows of a model and of a machine that was measured.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/plan/serving_cost.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/program/inference_work.h"

namespace tutti::cli {

// A preset of recipes/models, or the model of a run folder or a Hugging Face folder.
spec::ModelConfig find_served_model(FileSystem& files, const std::string& name);

spec::InferenceForm inference_form(const std::string& weights);  // bf16, f32, int8, int4

// The rates of the machine on which `tutti bench inference --json` printed the file at `path`.
// Throws usage where that was with other weights, and corrupt for what no measurement can be.
plan::ServingRates measured_rates(FileSystem& files, const std::string& path,
                                  const std::string& weights);

}  // namespace tutti::cli
