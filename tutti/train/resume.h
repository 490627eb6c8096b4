// What may change when a run goes on, and what must not.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/spec/recipe.h"

namespace tutti::train {

// Every key of a recipe with its value as text: ("optimizer.beta1", "0.9"), in recipe order.
std::vector<std::pair<std::string, std::string>> flatten(const spec::Recipe& recipe);

// Throws usage naming the first key in which `wanted` differs from what the run was started with
// although it decides the run's arithmetic. Free to change: train.steps and train.target_loss
// (when to stop), checkpoint.* (initialize_from with adapters only), evaluate.*, run.*, parallel.*
// (with another mesh also batch.micro), data.validation, and distill.teacher from one place to
// another.
void check_resumable(const spec::Recipe& stored, const spec::Recipe& wanted,
                     const std::string& run_folder);

}  // namespace tutti::train
