// Reads the model of a recipe: a preset by name or path, its own keys, or a preset with keys that
// override it.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "tutti/spec/model/config.h"

namespace tutti::spec {

// Reads the node at `path` ("model" or "distill.model") of the recipe `origin`. Throws usage if it
// is missing or a value is impossible, not_found if `models_folder` lacks the preset. The result is
// neither resolved nor validated yet.
ModelConfig read_model_node(const YAML::Node& node, const std::string& path,
                            const std::string& origin, const std::string& models_folder);

}  // namespace tutti::spec
