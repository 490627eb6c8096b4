#include "tutti/cli/control/named_presets.h"

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::cli {
namespace {

// `model` is a key's value: a name, or a mapping that may name a preset.
void require_name(const YAML::Node& model, const char* key) {
  if (!model.IsDefined()) return;
  if (model.IsMap()) return require_name(model["preset"], key);
  if (!model.IsScalar() || !ends_with(model.Scalar(), ".yaml")) return;
  fail(
      ErrorKind::usage,
      "{}: '{}' is a file; over the network only installed presets are read: name one, or give the "
      "model's keys",
      key, model.Scalar());
}

}  // namespace

void require_named_presets(const std::string& text, const std::string& origin,
                           const std::vector<std::string>& overrides) {
  YAML::Node root = spec::parse_yaml(text, origin);
  for (const std::string& assignment : overrides) spec::apply_override(root, assignment);
  if (!root.IsMap()) return;
  require_name(root["model"], "model");
  if (root["distill"].IsMap()) require_name(root["distill"]["model"], "distill.model");
}

}  // namespace tutti::cli
