#include "tutti/spec/recipe/key_table.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/spec/recipe/keys.h"

namespace tutti::spec {
namespace {

// Collects the keys with the values of a default recipe.
class KeyCollector {
 public:
  KeyCollector& when(bool /*is_written*/) { return *this; }
  KeyCollector& usually(const char* text) {
    usual_ = text;
    return *this;
  }

  template <typename Integer>
  void count(const char* key, Integer x, Accepted accepted, const char* help) {
    RecipeKey& added = add(key, KeyKind::count, fmt::format("{}", x), help);
    added.least = accepted.least;
    added.most = accepted.most;
  }
  void count_or_all(const char* key, int64_t x, int64_t least, int64_t all, const char* help) {
    add(key, KeyKind::count_or_all, x == all ? "all" : fmt::format("{}", x), help).least = least;
  }
  void seed(const char* key, uint64_t x, const char* help) {
    add(key, KeyKind::seed, fmt::format("{}", x), help);
  }
  void real(const char* key, double x, const char* help) {
    add(key, KeyKind::real, fmt::format("{}", x), help);
  }
  void real(const char* key, const std::optional<double>& x, const char* help) {
    real(key, x.value_or(0), help);
  }
  void seconds(const char* key, double x, const char* help) {
    add(key, KeyKind::seconds, fmt::format("{}", x), help);
  }
  void flag(const char* key, bool x, const char* help) {
    add(key, KeyKind::flag, x ? "true" : "false", help);
  }
  void text(const char* key, const std::string& x, const char* help) {
    add(key, KeyKind::text, x, help);
  }
  void texts(const char* key, const std::vector<std::string>& list, const char* help) {
    add(key, KeyKind::names, join(list, ", "), help);
  }
  void counts(const char* key, const std::vector<int64_t>& /*list*/, const char* help) {
    add(key, KeyKind::counts, "", help);
  }
  template <typename Flags>
  void flags(const char* key, const Flags& flags, const char* help) {
    RecipeKey& added = add(key, KeyKind::names, "", help);
    for (const auto& flag : flags) added.names.emplace_back(flag.name);
  }
  template <typename Enum>
  void choice(const char* key, const Enum& x, const Names<Enum>& names, const char* help) {
    add(key, KeyKind::choice, name_of(names, x), help).names = first_of(names);
  }
  void blend(const char* key, const CorpusBlend& /*x*/, const char* help) {
    add(key, KeyKind::blend, "", help);
  }
  void parts(const char* key, const Recompute& /*recompute*/, const char* help) {
    add(key, KeyKind::names, "default", help).names = first_of(kPartNames);
  }
  void model(const char* key, const ModelConfig& x, const char* help) {
    add(key, KeyKind::model, "required", help);
    within(key, [&](KeyCollector& inner) { model_keys(inner, x); });
  }
  void model(const char* key, const std::optional<ModelConfig>& /*x*/, const char* help) {
    add(key, KeyKind::model, "", help);
  }
  template <typename Keys>
  void section(const char* key, const Keys& keys, const char* help) {
    add(key, KeyKind::section, "", help);
    within(key, keys);
  }
  template <typename Enum, typename Keys>
  void choice_or_section(const char* key, const Enum& x, const Names<Enum>& names,
                         bool /*is_choice*/, const Keys& keys, const char* help) {
    add(key, KeyKind::choice_or_section, name_of(names, x), help).names = first_of(names);
    within(key, keys);
  }
  std::vector<RecipeKey> take() { return std::move(keys_); }

 private:
  template <typename Enum>
  static std::vector<std::string> first_of(const Names<Enum>& names) {
    std::vector<std::string> firsts;
    for (const auto& [name, value] : names) firsts.push_back(name);
    return firsts;
  }
  template <typename Keys>
  void within(const char* key, const Keys& keys) {
    const std::string outside = std::exchange(prefix_, prefix_ + key + ".");
    keys(*this);
    prefix_ = outside;
  }
  RecipeKey& add(const char* key, KeyKind kind, const std::string& usual, const char* help) {
    const char* said = std::exchange(usual_, nullptr);
    keys_.push_back({prefix_ + key, kind, said != nullptr ? said : usual, help, 0, INT64_MAX, {}});
    return keys_.back();
  }

  std::vector<RecipeKey> keys_;
  std::string prefix_;
  const char* usual_ = nullptr;
};

bool is_section(const RecipeKey& key) {
  return key.kind == KeyKind::section || key.kind == KeyKind::choice_or_section ||
         key.kind == KeyKind::model;
}

std::string range_text(const RecipeKey& key) {
  return key.most == INT64_MAX ? fmt::format("{} or more", key.least)
                               : fmt::format("{} to {}", key.least, key.most);
}

Json text_schema() { return {{"type", {"string", "number", "boolean", "null"}}}; }

// A number with a suffix ("10k", "90s") is text in YAML.
Json number_schema(const char* type, const char* pattern) {
  return {{"anyOf", {{{"type", type}}, {{"type", "string"}, {"pattern", pattern}}}}};
}

Json count_schema(const RecipeKey& key) {
  Json schema = number_schema("integer", R"(^[0-9]+(\.[0-9]+)?[kMBT]$)");
  schema["anyOf"][0]["minimum"] = key.least;
  if (key.most != INT64_MAX) schema["anyOf"][0]["maximum"] = key.most;
  return schema;
}

Json value_schema(const RecipeKey& key) {
  switch (key.kind) {
    case KeyKind::count: return count_schema(key);
    case KeyKind::count_or_all: {
      Json schema = count_schema(key);
      schema["anyOf"].push_back({{"const", "all"}});
      return schema;
    }
    case KeyKind::seed: return {{"type", "integer"}, {"minimum", 0}};
    case KeyKind::real: return number_schema("number", R"(^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$)");
    case KeyKind::seconds: return number_schema("number", R"(^[0-9.]+ ?(ms|s|min|h|d)$)");
    case KeyKind::flag: return {{"type", "boolean"}};
    case KeyKind::choice: return {{"enum", key.names}};
    case KeyKind::counts: return {{"type", "array"}, {"items", {{"type", "integer"}}}};
    case KeyKind::names: {
      const Json item = key.names.empty() ? text_schema() : Json{{"enum", key.names}};
      Json schema = {{"anyOf", {{{"type", "array"}, {"items", item}}, item}}};
      if (key.usual == "default") schema["anyOf"].push_back({{"const", "default"}});
      return schema;
    }
    case KeyKind::blend:
      return {{"anyOf",
               {text_schema(),
                {{"type", "array"},
                 {"items",
                  {{"type", "object"},
                   {"properties", {{"prefix", text_schema()}, {"weight", {{"type", "number"}}}}},
                   {"required", {"prefix"}},
                   {"additionalProperties", false}}}}}}};
    default: return text_schema();
  }
}

Json section_schema(const RecipeKey& key) {
  Json mapping = {{"type", "object"}, {"properties", Json::object()}};
  mapping["additionalProperties"] = false;
  if (key.kind == KeyKind::model) {
    mapping["properties"]["preset"] = {{"type", "string"}};
    return {{"anyOf", {mapping, {{"type", "string"}}}}};
  }
  if (key.kind == KeyKind::choice_or_section) {
    return {{"anyOf", {mapping, {{"enum", key.names}}}}};
  }
  mapping["type"] = {"object", "null"};  // a section without a key
  return mapping;
}

Json& properties(Json& schema) {
  return schema.contains("anyOf") ? schema["anyOf"][0]["properties"] : schema["properties"];
}

}  // namespace

std::vector<RecipeKey> recipe_key_table() {
  KeyCollector collector;
  const Recipe usual;
  recipe_keys(collector, usual);
  return collector.take();
}

std::string accepted_text(const RecipeKey& key) {
  switch (key.kind) {
    case KeyKind::count: return range_text(key);
    case KeyKind::count_or_all: return range_text(key) + ", all";
    case KeyKind::seed: return "0 to 2^64 - 1";
    case KeyKind::real: return "number";
    case KeyKind::seconds: return "time: 90s, 10min, 1.5h";
    case KeyKind::flag: return "true, false";
    case KeyKind::text: return "text";
    case KeyKind::names: return "list of " + (key.names.empty() ? "names" : join(key.names, ", "));
    case KeyKind::counts: return "list of whole numbers";
    case KeyKind::choice: return join(key.names, ", ");
    case KeyKind::blend: return "PREFIX, or list of {prefix, weight}";
    case KeyKind::model: return "preset, or mapping";
    case KeyKind::section: return "mapping";
    case KeyKind::choice_or_section: return join(key.names, ", ") + ", or mapping";
  }
  return "";
}

std::string recipe_keys_markdown() {
  constexpr const char* kHead = "\n| Key | Accepted | Default | Meaning |\n|---|---|---|---|\n";
  const auto row = [](const RecipeKey& key) {
    return fmt::format("| `{}` | {} | {} | {} |\n", key.path, accepted_text(key), key.usual,
                       key.help);
  };
  std::string outside = std::string("## Keys without a section\n") + kHead;
  std::string sections;
  for (const RecipeKey& key : recipe_key_table()) {
    if (key.path.find('.') != std::string::npos) {
      sections += row(key);
    } else if (is_section(key)) {
      sections += fmt::format("\n## `{}`\n\n{}. Accepted: {}.\n{}", key.path, key.help,
                              accepted_text(key), kHead);
    } else {
      outside += row(key);
    }
  }
  return outside + sections;
}

Json recipe_schema() {
  Json root = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
               {"title", "Recipe of Tutti"},
               {"type", "object"},
               {"properties", Json::object()}};
  root["additionalProperties"] = false;
  root["required"] = {"model"};
  for (const RecipeKey& key : recipe_key_table()) {
    Json* at = &root;
    const std::vector<std::string_view> names = split(key.path, '.');
    for (size_t i = 0; i + 1 < names.size(); ++i) at = &properties(*at)[std::string(names[i])];
    Json schema = is_section(key) ? section_schema(key) : value_schema(key);
    if (key.path == "distill.model") schema = {{"$ref", "#/properties/model"}};
    schema["description"] = key.help + (key.usual.empty() ? "" : "; default: " + key.usual);
    properties(*at)[std::string(names.back())] = std::move(schema);
  }
  return root;
}

}  // namespace tutti::spec
