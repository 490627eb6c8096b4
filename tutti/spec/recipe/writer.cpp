#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/spec/model/keys.h"
#include "tutti/spec/recipe/keys.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {
namespace {

// Always in double quotes, so that no text is taken for a number, a flag or a comment.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  out += '"';
  return out;
}

// Writes the keys of a section (spec/recipe/keys.h).
class KeyWriter {
 public:
  KeyWriter& when(bool is_written) {
    skips_next_ = !is_written;
    return *this;
  }
  KeyWriter& usually(const char* /*text*/) { return *this; }

  template <typename Integer>
  void count(const char* key, Integer x, Accepted /*accepted*/, const char* /*help*/) {
    line(key, fmt::format("{}", x));
  }
  void count_or_all(const char* key, int64_t x, int64_t /*least*/, int64_t all,
                    const char* /*help*/) {
    line(key, x == all ? "all" : fmt::format("{}", x));
  }
  void seed(const char* key, uint64_t x, const char* /*help*/) { line(key, fmt::format("{}", x)); }
  void real(const char* key, double x, const char* /*help*/) {
    line(key, fmt::format("{}", x));  // shortest text that reads back equal
  }
  void real(const char* key, const std::optional<double>& x, const char* help) {
    real(key, x.value_or(0), help);  // visited with when(has_value())
  }
  void seconds(const char* key, double x, const char* help) { real(key, x, help); }
  void flag(const char* key, bool x, const char* /*help*/) { line(key, x ? "true" : "false"); }
  void text(const char* key, const std::string& x, const char* /*help*/) { line(key, quoted(x)); }
  void texts(const char* key, const std::vector<std::string>& texts, const char* /*help*/) {
    std::vector<std::string> items;
    items.reserve(texts.size());
    for (const std::string& text : texts) items.push_back(quoted(text));
    line(key, fmt::format("[{}]", join(items, ", ")));
  }
  void counts(const char* key, const std::vector<int64_t>& counts, const char* /*help*/) {
    line(key, fmt::format("[{}]", fmt::join(counts, ", ")));
  }
  template <typename Flags>
  void flags(const char* key, const Flags& flags, const char* help) {
    std::vector<std::string> names;
    for (const auto& flag : flags) {
      if (*flag.value) names.emplace_back(flag.name);
    }
    texts(key, names, help);
  }
  template <typename Enum>
  void choice(const char* key, const Enum& x, const Names<Enum>& names, const char* /*help*/) {
    line(key, name_of(names, x));
  }
  // One prefix, or a list on one line.
  void blend(const char* key, const CorpusBlend& x, const char* help) {
    if (x.empty()) return text(key, "", help);
    if (x.corpora.size() == 1 && x.corpora[0].weight == 1) {
      return text(key, x.corpora[0].prefix, help);
    }
    std::string list;
    for (const CorpusShare& share : x.corpora) {
      list += fmt::format("{}{{prefix: {}, weight: {}}}", list.empty() ? "" : ", ",
                          quoted(share.prefix), share.weight);
    }
    line(key, "[" + list + "]");
  }
  void parts(const char* key, const Recompute& recompute, const char* /*help*/) {
    line(key,
         recompute.parts == 0 ? "default" : fmt::format("[{}]", part_names(recompute.parts, ", ")));
  }
  void model(const char* key, const ModelConfig& x, const char* help) {
    section(
        key, [&](KeyWriter& inner) { model_keys(inner, x); }, help);
  }
  void model(const char* key, const std::optional<ModelConfig>& x, const char* help) {
    if (x) model(key, *x, help);
  }
  template <typename Keys>
  void section(const char* key, const Keys& keys, const char* /*help*/) {
    line(key, "");
    ++depth_;
    keys(*this);
    --depth_;
  }
  template <typename Enum, typename Keys>
  void choice_or_section(const char* key, const Enum& x, const Names<Enum>& names, bool is_choice,
                         const Keys& keys, const char* help) {
    if (is_choice) {
      choice(key, x, names, help);
    } else {
      section(key, keys, help);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  void line(const char* key, const std::string& value) {
    const bool skips = std::exchange(skips_next_, false);
    if (skips) return;
    text_ += fmt::format("{:{}}{}:{}{}\n", "", 2 * depth_, key, value.empty() ? "" : " ", value);
  }

  std::string text_;
  int depth_ = 0;
  bool skips_next_ = false;
};

}  // namespace

std::string to_yaml(const ModelConfig& model) {
  KeyWriter out;
  model_keys(out, model);
  return out.take();
}

std::string to_yaml(const Recipe& recipe) {
  KeyWriter out;
  recipe_keys(out, recipe);
  return out.take();
}

}  // namespace tutti::spec
