// Recipes that come over the network, such as from the page: they are read by the account of the
// server, which may read more than who wrote them.
#pragma once

#include <string>
#include <vector>

namespace tutti::cli {

// Throws usage where the recipe, or what overrides it, takes a model's preset from a file instead
// of by the name of an installed one: what is wrong with a file says what is in it. `origin` is the
// recipe's path. Throws as spec::parse_recipe for text that is not YAML.
void require_named_presets(const std::string& text, const std::string& origin,
                           const std::vector<std::string>& overrides);

}  // namespace tutti::cli
