#include "tutti/catalog/entry.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/recipe/yaml_map.h"

namespace tutti::catalog {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool is_date(const std::string& text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (const size_t at : {0U, 1U, 2U, 3U, 5U, 6U, 8U, 9U}) {
    if (std::isdigit(static_cast<unsigned char>(text[at])) == 0) return false;
  }
  const int month = std::stoi(text.substr(5, 2));
  const int day = std::stoi(text.substr(8, 2));
  return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

struct Source {
  std::string text;
  std::string date;
};

// A number, or {value, source, date}; what it does not say is the file's.
Quantity read_quantity(spec::YamlMap& map, const std::string& key, const Source& common,
                       const std::string& origin) {
  if (!unit_of(key)) {
    map.fail_key(key, "has no unit; end its name in one of _" + join(known_units(), ", _"));
  }
  Quantity quantity;
  quantity.source = common.text;
  quantity.date = common.date;
  if (map.node(key).IsMap()) {
    spec::YamlMap parts = map.map(key);
    if (!parts.has("value")) map.fail_key(key, "needs `value`");
    parts.read_real("value", quantity.value);
    parts.read_text("source", quantity.source);
    parts.read_text("date", quantity.date);
    parts.finish();
  } else {
    map.read_real(key, quantity.value);
  }
  if (!std::isfinite(quantity.value) || quantity.value < 0) {
    map.fail_key(key, "must be a finite number, zero or more");
  }
  if (quantity.source.empty()) {
    map.fail_key(key,
                 "has no source; write `source: {text: ..., date: YYYY-MM-DD}` at the top of " +
                     origin + " or next to the value");
  }
  if (!is_date(quantity.date)) {
    map.fail_key(key, "has no date of the form YYYY-MM-DD (found '" + quantity.date + "')");
  }
  return quantity;
}

Tier read_tier(const YAML::Node& node, const std::string& path, const Source& common,
               const std::string& origin) {
  spec::YamlMap map(node, path, origin);
  Tier tier;
  map.read_text("name", tier.name);
  if (tier.name.empty()) map.fail_key("name", "is missing");
  for (const auto& item : node) {
    const std::string& key = item.first.Scalar();
    if (key == "name") continue;
    if (unit_of(key)) {
      tier.quantities[key] = read_quantity(map, key, common, origin);
    } else {
      map.read_text(key, tier.texts[key]);
    }
  }
  map.finish();
  return tier;
}

}  // namespace

const std::vector<std::string>& known_units() {
  static const std::vector<std::string> units = {"tflops",
                                                 "gigabytes",
                                                 "terabytes",
                                                 "gigabytes_per_second",
                                                 "terabytes_per_second",
                                                 "watts",
                                                 "kilowatts",
                                                 "seconds",
                                                 "microseconds",
                                                 "gigahertz",
                                                 "usd_per_hour",
                                                 "kg_per_kwh",
                                                 "liters_per_kwh",
                                                 "per_day",
                                                 "per_second",
                                                 "ratio",
                                                 "count"};
  return units;
}

std::optional<std::string> unit_of(const std::string& quantity_name) {
  std::optional<std::string> longest;
  for (const std::string& unit : known_units()) {
    const bool whole = quantity_name == unit || ends_with(quantity_name, "_" + unit);
    if (whole && (!longest || unit.size() > longest->size())) longest = unit;
  }
  return longest;
}

bool Entry::answers_to(const std::string& wanted) const {
  const std::string key = lower(wanted);
  return lower(name) == key || std::any_of(aliases.begin(), aliases.end(),
                                           [&](const auto& alias) { return lower(alias) == key; });
}

double Entry::number(const std::string& key) const {
  const auto found = quantities.find(key);
  if (found == quantities.end()) {
    fail(ErrorKind::usage, "{}: quantities.{}: is missing, but {} {} needs it", origin, key, kind,
         name);
  }
  return found->second.value;
}

double Entry::number_or(const std::string& key, double fallback) const {
  const auto found = quantities.find(key);
  return found == quantities.end() ? fallback : found->second.value;
}

std::string Entry::text(const std::string& key) const {
  const auto found = texts.find(key);
  if (found == texts.end()) {
    fail(ErrorKind::usage, "{}: texts.{}: is missing, but {} {} needs it", origin, key, kind, name);
  }
  return found->second;
}

std::string Entry::text_or(const std::string& key, const std::string& fallback) const {
  const auto found = texts.find(key);
  return found == texts.end() ? fallback : found->second;
}

Entry parse_entry(const std::string& text, const std::string& origin) {
  spec::YamlMap map(spec::parse_yaml(text, origin), "", origin);
  Entry entry;
  entry.origin = origin;
  map.read_text("kind", entry.kind);
  map.read_text("name", entry.name);
  if (entry.kind.empty()) map.fail_key("kind", "is missing");
  if (entry.name.empty()) map.fail_key("name", "is missing");
  for (const auto& alias : map.node("aliases")) entry.aliases.push_back(alias.Scalar());

  Source common;
  spec::YamlMap source = map.map("source");
  source.read_text("text", common.text);
  source.read_text("date", common.date);
  source.finish();

  spec::YamlMap texts = map.map("texts");
  for (const auto& item : map.node("texts")) {
    texts.read_text(item.first.Scalar(), entry.texts[item.first.Scalar()]);
  }
  spec::YamlMap quantities = map.map("quantities");
  for (const auto& item : map.node("quantities")) {
    const std::string& key = item.first.Scalar();
    entry.quantities[key] = read_quantity(quantities, key, common, origin);
  }
  size_t index = 0;
  for (const auto& tier : map.node("tiers")) {
    entry.tiers.push_back(
        read_tier(tier, "tiers[" + std::to_string(index++) + "]", common, origin));
  }
  map.finish();
  return entry;
}

Entry load_entry(FileSystem& files, const std::string& path) {
  return parse_entry(read_file(files, path), path);
}

}  // namespace tutti::catalog
