#include "tutti/spec/recipe/yaml_map.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <sstream>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"

namespace tutti::spec {
namespace {

constexpr const char* kOverrideTag = "!override";

std::string location(const std::string& origin, const YAML::Node& node) {
  if (node.Tag() == kOverrideTag) return "override";
  const YAML::Mark mark = node.Mark();
  return mark.line >= 0 ? fmt::format("{}:{}", origin, mark.line + 1) : origin;
}

// Its lines are those of the override's own little text, not of the file that it is put into.
void tag_override(YAML::Node node) {
  node.SetTag(kOverrideTag);
  if (node.IsScalar()) return;
  for (const auto& entry : node) {
    tag_override(node.IsMap() ? entry.second : entry);
    if (node.IsMap()) tag_override(entry.first);
  }
}

// Refuses what YAML::Load passes over in silence: a second document, and tags, whose meaning would
// be lost. Sees each node as it is written, so that aliases are not followed.
class Strictness final : public YAML::EventHandler {
 public:
  explicit Strictness(const std::string& origin) : origin_(origin) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    fail(ErrorKind::usage, "{}:{}: a second YAML document begins here; write one per file", origin_,
         mark.line + 1);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    check(mark, tag);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    check(mark, tag);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    check(mark, tag);
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnSequenceEnd() override {}
  void OnMapEnd() override {}

 private:
  // "?" and "!": none was written.
  void check(const YAML::Mark& mark, const std::string& tag) const {
    static const std::set<std::string> known = {
        "",
        "?",
        "!",
        "tag:yaml.org,2002:str",
        "tag:yaml.org,2002:int",
        "tag:yaml.org,2002:float",
        "tag:yaml.org,2002:bool",
        "tag:yaml.org,2002:null",
        "tag:yaml.org,2002:map",
        "tag:yaml.org,2002:seq",
    };
    if (known.count(tag) > 0) return;
    fail(ErrorKind::usage, "{}:{}: the tag '{}' is unknown; write the value without it", origin_,
         mark.line + 1, printable(tag));
  }

  const std::string& origin_;
  int documents_ = 0;
};

}  // namespace

YAML::Node parse_yaml(const std::string& text, const std::string& origin) {
  try {
    YAML::Node value = YAML::Load(text);
    std::istringstream again(text);
    YAML::Parser parser(again);
    Strictness strictness(origin);
    while (parser.HandleNextDocument(strictness)) {
    }
    return value;
  } catch (const YAML::Exception& error) {
    fail(ErrorKind::usage, "{}:{}: not YAML: {}", origin, error.mark.line + 1, error.msg);
  }
}

void apply_override(YAML::Node& root, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  const std::string key(trim(std::string_view(assignment).substr(0, equals)));
  if (equals == std::string::npos || key.empty()) {
    fail(ErrorKind::usage, "override '{}': write it as key=value, such as train.steps=100",
         assignment);
  }
  const std::string origin = fmt::format("override '{}'", assignment);
  YAML::Node value = parse_yaml(assignment.substr(equals + 1), origin);
  tag_override(value);
  const std::vector<std::string_view> parts = split(key, '.');
  if (!root.IsMap()) root = YAML::Node(YAML::NodeType::Map);
  std::vector<YAML::Node> chain = {root};
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const std::string part(parts[i]);
    YAML::Node next = chain.back()[part];
    const bool model = part == "model" && (i == 0 || (i == 1 && parts[0] == "distill"));
    const bool recompute = part == "recompute" && i == 0;
    const bool precision = part == "precision" && i == 0;
    const char* scalar_key = model       ? "preset"
                             : recompute ? "mode"
                             : precision ? "compute"
                                         : nullptr;
    if (scalar_key != nullptr && next.IsDefined() && next.IsScalar()) {
      YAML::Node mapping(YAML::NodeType::Map);
      mapping[scalar_key] = next.Scalar();
      chain.back()[part] = mapping;
      next = mapping;
    } else if (!next.IsDefined() || next.IsNull()) {
      YAML::Node mapping(YAML::NodeType::Map);
      mapping.SetTag(kOverrideTag);
      chain.back()[part] = mapping;
      next = mapping;
    } else if (!next.IsMap()) {
      fail(ErrorKind::usage, "{}: '{}' is a value, not a section", origin, part);
    }
    chain.push_back(next);
  }
  chain.back()[std::string(parts.back())] = value;
}

YamlMap::YamlMap(const YAML::Node& node, std::string path, std::string origin)
    : path_(std::move(path)), origin_(std::move(origin)) {
  if (!node.IsDefined() || node.IsNull()) return;
  if (!node.IsMap()) {
    fail(ErrorKind::usage, "{}: {}: expected a mapping (key: value lines), found {}",
         location(origin_, node), path_.empty() ? "the document" : path_,
         node.IsScalar() ? "'" + node.Scalar() + "'" : "a list");
  }
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      fail(ErrorKind::usage, "{}: {}: a key must be plain text", location(origin_, entry.first),
           path_);
    }
    const std::string& key = entry.first.Scalar();
    for (const auto& earlier : entries_) {
      if (earlier.first == key) {
        fail(ErrorKind::usage, "{}: {}: given twice", location(origin_, entry.first), path_of(key));
      }
    }
    entries_.emplace_back(key, entry.second);
  }
}

std::string YamlMap::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

std::string YamlMap::where(const std::string& key) const {
  const std::string full = path_of(key);
  for (const auto& [name, node] : entries_) {
    if (name == key) return fmt::format("{}: {}", location(origin_, node), full);
  }
  return fmt::format("{}: {}", origin_, full);
}

void YamlMap::fail_key(const std::string& key, const std::string& message) {
  fail(ErrorKind::usage, "{}: {}", where(key), message);
}

YAML::Node YamlMap::node(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  for (const auto& [name, node] : entries_) {
    if (name == key) return node;
  }
  return YAML::Node(YAML::NodeType::Undefined);
}

bool YamlMap::has(const std::string& key) { return node(key).IsDefined(); }

YamlMap YamlMap::map(const std::string& key) { return YamlMap(node(key), path_of(key), origin_); }

std::vector<YamlMap> YamlMap::items(const std::string& key) {
  std::vector<YamlMap> maps;
  for (const YAML::Node& item : node(key)) {
    const std::string name = fmt::format("{}.{}", key, maps.size());
    maps.emplace_back(item, path_of(name), origin_);
  }
  return maps;
}

std::optional<std::string> YamlMap::scalar(const std::string& key, const char* wanted) {
  const YAML::Node value = node(key);
  if (!value.IsDefined()) return std::nullopt;
  if (!value.IsScalar()) {
    fail_key(key, fmt::format("expected {}, found {}", wanted,
                              value.IsNull()  ? "nothing"
                              : value.IsMap() ? "a mapping"
                                              : "a list"));
  }
  return value.Scalar();
}

void YamlMap::read_text(const std::string& key, std::string& value) {
  if (node(key).IsDefined() && node(key).IsNull()) {
    value.clear();
    return;
  }
  if (auto text = scalar(key, "text")) value = *text;
}

void YamlMap::read_texts(const std::string& key, std::vector<std::string>& values) {
  const YAML::Node list = node(key);
  if (!list.IsDefined()) return;
  values.clear();
  if (list.IsScalar()) values.push_back(list.Scalar());
  if (list.IsScalar() || list.IsNull()) return;
  if (!list.IsSequence()) fail_key(key, "expected a list of names such as [a, b], found a mapping");
  for (const YAML::Node& item : list) {
    if (!item.IsScalar()) fail_key(key, "expected a list of names such as [a, b]");
    values.push_back(item.Scalar());
  }
}

void YamlMap::read_counts(const std::string& key, std::vector<int64_t>& values) {
  std::vector<std::string> texts;
  if (!has(key)) return;
  read_texts(key, texts);
  values.clear();
  for (const std::string& text : texts) values.push_back(parse_count(text, where(key)));
}

void YamlMap::read_count(const std::string& key, int64_t& value, int64_t least, int64_t most) {
  const auto text = scalar(key, "a whole number");
  if (!text) return;
  const int64_t number = parse_count(*text, where(key));
  if (number < least || number > most) {
    fail_key(key, fmt::format("{} is out of range; accepted: {}", *text,
                              most == INT64_MAX ? fmt::format("{} or more", least)
                                                : fmt::format("{} to {}", least, most)));
  }
  value = number;
}

void YamlMap::read_count(const std::string& key, int& value, int64_t least, int64_t most) {
  int64_t wide = value;
  read_count(key, wide, least, std::min<int64_t>(most, INT32_MAX));
  value = static_cast<int>(wide);
}

void YamlMap::read_seed(const std::string& key, uint64_t& value) {
  const auto text = scalar(key, "a whole number");
  if (!text) return;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc() || end != text->data() + text->size()) {
    fail_key(key, fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", *text));
  }
}

void YamlMap::read_real(const std::string& key, double& value) {
  const auto text = scalar(key, "a number");
  if (!text) return;
  const auto [end, status] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (status != std::errc() || end != text->data() + text->size() || !std::isfinite(value)) {
    fail_key(key, fmt::format("'{}' is not a number such as 0.1 or 6e-4", *text));
  }
}

void YamlMap::read_real(const std::string& key, std::optional<double>& value) {
  const YAML::Node found = node(key);
  if (!found.IsDefined()) return;
  if (found.IsNull()) {
    value.reset();
    return;
  }
  double number = 0;
  read_real(key, number);
  value = number;
}

void YamlMap::read_seconds(const std::string& key, double& value) {
  const auto text = scalar(key, "a time");
  if (text) value = parse_seconds(*text, where(key));
}

void YamlMap::read_flag(const std::string& key, bool& value) {
  const auto text = scalar(key, "true or false");
  if (!text) return;
  if (*text != "true" && *text != "false") {
    fail_key(key, fmt::format("'{}' is neither true nor false", *text));
  }
  value = *text == "true";
}

int YamlMap::choice_index(const std::string& key, const std::vector<std::string>& names) {
  const auto text = scalar(key, "a name");
  if (!text) return -1;
  const auto found = std::find(names.begin(), names.end(), *text);
  if (found == names.end()) {
    fail_key(key, fmt::format("'{}' is unknown; accepted: {}", *text, join(names, ", ")));
  }
  return static_cast<int>(found - names.begin());
}

void YamlMap::finish() {
  for (const auto& [name, node] : entries_) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    const std::string suggestion = nearest_word(name, known_);
    fail_key(name, suggestion.empty()
                       ? fmt::format("unknown key; accepted here: {}", join(known_, ", "))
                       : fmt::format("unknown key; did you mean '{}'?", suggestion));
  }
}

}  // namespace tutti::spec
