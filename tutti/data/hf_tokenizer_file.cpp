#include "tutti/data/hf_tokenizer_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/utf8.h"

namespace tutti::data {
namespace {

// Not tutti::Json, which keeps the order of keys and looks them up one by one: a vocabulary has
// hundreds of thousands.
using Object = nlohmann::json;

class Reader {
 public:
  Reader(const std::string& origin, HfTokenizerFile& out) : origin_(origin), out_(out) {}

  void read(const Object& file) {
    if (!file.is_object() || !file.contains("model")) {
      fail(ErrorKind::corrupt, "'{}': this is not a tokenizer.json: it has no 'model'", origin_);
    }
    const Object* pre = member(file, "pre_tokenizer");
    const Object* decoder = member(file, "decoder");
    out_.byte_level = mentions(pre, "ByteLevel") || mentions(decoder, "ByteLevel");
    read_model(file["model"]);
    read_added(file);
    if (const Object* normalizer = member(file, "normalizer")) read_normalizer(*normalizer);
    if (pre != nullptr) read_split(*pre);
    if (decoder != nullptr) read_decoder(*decoder);
    if (const Object* post = member(file, "post_processor")) read_post_processor(*post);
  }

 private:
  // The member, or nothing when it is absent or null.
  static const Object* member(const Object& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  static bool mentions(const Object* node, const std::string& type) {
    if (node == nullptr) return false;
    if (node->is_object() && node->value("type", Object()) == type) return true;
    return (node->is_object() || node->is_array()) &&
           std::any_of(node->begin(), node->end(),
                       [&](const Object& child) { return mentions(&child, type); });
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::unsupported, "'{}': {} is not supported", origin_, what);
  }

  template <typename T>
  T get(const Object& object, const char* key) const {
    const Object* found = member(object, key);
    if (found == nullptr) fail(ErrorKind::corrupt, "'{}': key '{}' is missing", origin_, key);
    try {
      return found->get<T>();
    } catch (const Object::exception&) {
      fail(ErrorKind::corrupt, "'{}': key '{}' has the wrong type: {}", origin_, key,
           found->dump(-1, ' ', false, Object::error_handler_t::replace).substr(0, 80));
    }
  }
  template <typename T>
  T get_or(const Object& object, const char* key, T otherwise) const {
    return member(object, key) == nullptr ? otherwise : get<T>(object, key);
  }

  int32_t read_id(const Object& value, const std::string& token) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 ||
        value.get<int64_t>() > (int64_t{1} << 28)) {
      fail(ErrorKind::corrupt, "'{}': token \"{}\" has the id {}; ids are numbers from 0 on",
           origin_, printable(token), value.dump());
    }
    return value.get<int32_t>();
  }

  // A token as bytes; false when it is not spelled in the alphabet of bytes.
  bool to_bytes(const std::string& token, std::string& bytes) const {
    bytes.clear();
    for (size_t at = 0; at < token.size();) {
      const Utf8Char c = decode_utf8(token, at);
      at += c.bytes;
      if (c.value >= 0x144 || byte_of_[c.value] < 0) return false;
      bytes += static_cast<char>(byte_of_[c.value]);
    }
    return true;
  }

  std::string symbol(const std::string& token) const {
    std::string bytes;
    if (out_.byte_level && to_bytes(token, bytes)) return bytes;
    return token;
  }

  void read_model(const Object& model) {
    const auto type = get_or<std::string>(model, "type", "BPE");
    if (type != "BPE") refuse("a model of type '" + type + "'");
    if (get_or<double>(model, "dropout", 0) != 0) refuse("dropout of merges");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!get_or<std::string>(model, key, "").empty()) refuse(std::string("a ") + key);
    }
    out_.bpe.bytes = out_.byte_level;
    out_.bpe.byte_fallback = get_or<bool>(model, "byte_fallback", false);
    out_.bpe.whole_words = get_or<bool>(model, "ignore_merges", false);
    out_.bpe.fuse_unknown = get_or<bool>(model, "fuse_unk", false);
    if (out_.byte_level && out_.bpe.byte_fallback) out_.bpe.byte_fallback = false;  // never needed

    const Object* vocabulary = member(model, "vocab");
    if (vocabulary == nullptr || !vocabulary->is_object()) {
      fail(ErrorKind::corrupt, "'{}': model.vocab is not an object of tokens", origin_);
    }
    const auto unknown = get_or<std::string>(model, "unk_token", "");
    for (const auto& [token, value] : vocabulary->items()) {
      const int32_t id = read_id(value, token);
      const auto [place, fresh] = names_.emplace(id, token);
      if (!fresh) {
        fail(ErrorKind::corrupt, "'{}': tokens \"{}\" and \"{}\" have the same id {}", origin_,
             printable(place->second), printable(token), id);
      }
      out_.tokens.emplace_back(symbol(token), id);
      if (token == unknown) out_.bpe.unknown = id;
    }
    std::sort(out_.tokens.begin(), out_.tokens.end(),
              [](const auto& a, const auto& b) { return a.second < b.second; });
    read_merges(model);
  }

  void read_merges(const Object& model) {
    const Object* merges = member(model, "merges");
    if (merges == nullptr || !merges->is_array()) {
      fail(ErrorKind::corrupt, "'{}': model.merges is not a list", origin_);
    }
    for (const Object& merge : *merges) {
      std::string left;
      std::string right;
      if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
          left = text.substr(0, space);
          right = text.substr(space + 1);
        }
      } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
                 merge[1].is_string()) {
        left = merge[0];
        right = merge[1];
      }
      if (left.empty() || right.empty()) {
        fail(ErrorKind::corrupt, "'{}': merge {} is {}; it is two tokens with a space between",
             origin_, out_.merges.size(), merge.dump());
      }
      out_.merges.emplace_back(symbol(left), symbol(right));
    }
  }

  void read_added(const Object& file) {
    const Object* list = member(file, "added_tokens");
    if (list == nullptr) return;
    for (const Object& entry : *list) {
      AddedToken token;
      token.content = get<std::string>(entry, "content");
      const Object* id = member(entry, "id");
      token.id = read_id(id == nullptr ? Object() : *id, token.content);
      token.special = get_or<bool>(entry, "special", false);
      token.single_word = get_or<bool>(entry, "single_word", false);
      token.strip_left = get_or<bool>(entry, "lstrip", false);
      token.strip_right = get_or<bool>(entry, "rstrip", false);
      token.normalized = get_or<bool>(entry, "normalized", !token.special);
      const auto [place, fresh] = names_.emplace(token.id, token.content);
      if (!fresh && place->second != token.content) {
        fail(ErrorKind::corrupt, "'{}': tokens \"{}\" and \"{}\" have the same id {}", origin_,
             printable(place->second), printable(token.content), token.id);
      }
      out_.added.push_back(std::move(token));
    }
  }

  void read_normalizer(const Object& node) {
    const auto type = get<std::string>(node, "type");
    using Kind = NormalizeStep::Kind;
    if (type == "Sequence") {
      for (const Object& child : get<std::vector<Object>>(node, "normalizers")) {
        read_normalizer(child);
      }
    } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      out_.normalizer.push_back({type == "NFC"    ? Kind::nfc
                                 : type == "NFD"  ? Kind::nfd
                                 : type == "NFKC" ? Kind::nfkc
                                                  : Kind::nfkd});
    } else if (type == "Prepend") {
      out_.normalizer.push_back({Kind::prepend, "", get<std::string>(node, "prepend")});
    } else if (type == "Replace") {
      out_.normalizer.push_back(
          {Kind::replace, literal(node, "normalizer"), get<std::string>(node, "content")});
    } else {
      refuse("a normalizer of type '" + type + "'");
    }
  }

  // The string that a Replace replaces.
  std::string literal(const Object& node, const char* what) const {
    const Object* pattern = member(node, "pattern");
    const Object* text = pattern == nullptr ? nullptr : member(*pattern, "String");
    if (text == nullptr || !text->is_string() || text->get<std::string>().empty()) {
      refuse(std::string("a ") + what + " Replace of anything but a string");
    }
    return text->get<std::string>();
  }

  void read_split(const Object& node) {
    using Kind = SplitStep::Kind;
    const auto type = get<std::string>(node, "type");
    if (type == "Sequence") {
      for (const Object& child : get<std::vector<Object>>(node, "pretokenizers")) read_split(child);
    } else if (type == "ByteLevel") {
      if (get_or<bool>(node, "add_prefix_space", true)) out_.splits.push_back({Kind::prefix_space});
      if (get_or<bool>(node, "use_regex", true)) {
        out_.splits.push_back({Kind::words, WordRule::gpt2});
      }
    } else if (type == "Split") {
      read_pattern(node);
    } else if (type == "Digits") {
      const bool each = get_or<bool>(node, "individual_digits", false);
      out_.splits.push_back({each ? Kind::each_digit : Kind::digits});
    } else if (type == "Metaspace") {
      read_metaspace(node);
    } else {
      refuse("a pre-tokenizer of type '" + type + "'");
    }
  }

  void read_pattern(const Object& node) {
    const auto behaviour = get_or<std::string>(node, "behavior", "Isolated");
    if (behaviour != "Isolated") refuse("a Split with behavior '" + behaviour + "'");
    if (get_or<bool>(node, "invert", false)) refuse("an inverted Split");
    const Object* pattern = member(node, "pattern");
    const Object* regex = pattern == nullptr ? nullptr : member(*pattern, "Regex");
    std::string expression;
    if (regex != nullptr && regex->is_string()) {
      expression = *regex;
    } else {
      const std::string text = literal(node, "Split or");
      if (contains_quote_end(text)) refuse("a Split at \"" + text + "\"");
      expression = "\\Q" + text + "\\E";
    }
    SplitStep step;
    if (!find_word_rule(expression, step.rule)) {
      step.kind = SplitStep::Kind::pattern;
      step.pattern = std::make_shared<const Pattern>(expression, origin_);
    }
    out_.splits.push_back(step);
  }

  static bool contains_quote_end(const std::string& text) {
    return text.find("\\E") != std::string::npos;
  }

  void read_metaspace(const Object& node) {
    check_mark(node);
    using Prefix = SplitStep::Prefix;
    const bool old_prefix = get_or<bool>(node, "add_prefix_space", true);
    const auto scheme =
        get_or<std::string>(node, "prepend_scheme", old_prefix ? "always" : "never");
    SplitStep step{SplitStep::Kind::mark_spaces};
    step.prefix = scheme == "always"  ? Prefix::always
                  : scheme == "first" ? Prefix::first
                                      : Prefix::never;
    out_.splits.push_back(step);
    if (get_or<bool>(node, "split", true)) out_.splits.push_back({SplitStep::Kind::each_mark});
  }

  void check_mark(const Object& node) const {
    const auto mark = get_or<std::string>(node, "replacement", std::string(kSpaceMark));
    if (mark != kSpaceMark) refuse("a Metaspace with replacement '" + mark + "'");
  }

  void read_decoder(const Object& node) {
    const auto type = get<std::string>(node, "type");
    if (type == "Sequence") {
      for (const Object& child : get<std::vector<Object>>(node, "decoders")) read_decoder(child);
    } else if (type == "Metaspace") {
      check_mark(node);
      out_.marks_to_spaces = true;
      const bool never = get_or<std::string>(node, "prepend_scheme", "") == "never" ||
                         !get_or<bool>(node, "add_prefix_space", true);
      if (!never) out_.strip_spaces = 1;
    } else if (type == "Replace") {
      if (literal(node, "decoder") != kSpaceMark || get<std::string>(node, "content") != " ") {
        refuse("a decoder Replace of anything but the space mark by a space");
      }
      out_.marks_to_spaces = true;
    } else if (type == "Strip") {
      if (get<std::string>(node, "content") != " " || get_or<int>(node, "stop", 0) != 0) {
        refuse("a decoder Strip of anything but spaces at the start");
      }
      out_.strip_spaces = get_or<int>(node, "start", 0);
    } else if (type != "ByteLevel" && type != "ByteFallback" && type != "Fuse") {
      refuse("a decoder of type '" + type + "'");
    }
  }

  void read_post_processor(const Object& node) {
    const auto type = get<std::string>(node, "type");
    if (type == "Sequence") {
      for (const Object& child : get<std::vector<Object>>(node, "processors")) {
        read_post_processor(child);
      }
    } else if (type == "TemplateProcessing") {
      const Object* single = member(node, "single");
      if (single == nullptr || !single->is_array() || single->empty()) return;
      if (const Object* first = member(single->front(), "SpecialToken")) {
        out_.begin = get<std::string>(*first, "id");
      }
    } else if (type != "ByteLevel") {
      refuse("a post-processor of type '" + type + "'");
    }
  }

  const std::string& origin_;
  HfTokenizerFile& out_;
  std::unordered_map<int32_t, std::string> names_;
  // GPT-2's alphabet: a byte that is printable in Latin-1 is that character, the others are
  // U+0100 onwards in order of the bytes.
  const std::vector<int> byte_of_ = [] {
    std::vector<int> byte_of(0x144, -1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable_byte =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      byte_of[static_cast<size_t>(printable_byte ? byte : next++)] = byte;
    }
    return byte_of;
  }();
};

}  // namespace

int32_t find_hf_token(const HfTokenizerFile& file, const std::string& content) {
  for (const AddedToken& token : file.added) {
    if (token.content == content) return token.id;
  }
  for (const auto& [token, id] : file.tokens) {
    if (token == content) return id;
  }
  return -1;
}

HfTokenizerFile read_hf_tokenizer(std::string_view bytes, const std::string& origin) {
  Object file;
  try {
    file = Object::parse(bytes);
  } catch (const Object::exception& error) {
    fail(ErrorKind::corrupt, "{}: not valid JSON: {}", origin, error.what());
  }
  HfTokenizerFile out;
  Reader(origin, out).read(file);
  return out;
}

}  // namespace tutti::data
