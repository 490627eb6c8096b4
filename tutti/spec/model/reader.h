// The model of a recipe: a preset by name or path, keys of its own, or a preset with keys over it.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "tutti/spec/model/config.h"

namespace tutti::spec {

// What stands under `path` ("model" or "distill.model") of the recipe `origin`. Throws usage where
// it is missing or a value is impossible, not_found where `models_folder` lacks the preset. Neither
// resolved nor validated yet.
ModelConfig read_model_node(const YAML::Node& node, const std::string& path,
                            const std::string& origin, const std::string& models_folder);

}  // namespace tutti::spec
