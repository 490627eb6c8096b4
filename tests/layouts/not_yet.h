// Combinations that this build describes but refuses to train. A layout that is refused must be one
// of them, and one of them must be refused: so nothing is left out unnoticed.
#pragma once

#include <optional>
#include <string>

#include "tutti/spec/recipe/recipe.h"

namespace tutti::train::testing {

// Why `recipe` is one of them; nothing: it must train.
std::optional<std::string> not_yet(const spec::Recipe& recipe);

// Whether `recipe` trains here, and the message where it does not.
std::optional<std::string> refusal(const spec::Recipe& recipe);

// Compares the two, as a test: true when the layout is to be tried.
bool is_to_be_tried(const spec::Recipe& recipe, const std::string& name);

}  // namespace tutti::train::testing
