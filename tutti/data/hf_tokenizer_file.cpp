#include "tutti/data/hf_tokenizer_file.h"

#include <algorithm>
#include <unordered_map>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/hf_steps_reader.h"
#include "tutti/data/utf8.h"

namespace tutti::data {
namespace {

using Object = HfObject;

class Reader : private HfReader {
 public:
  Reader(const std::string& origin, HfTokenizerFile& out) : HfReader(origin), out_(out) {}

  void read(const Object& file) {
    if (!file.is_object() || !file.contains("model")) {
      fail(ErrorKind::corrupt, "'{}': this is not a tokenizer.json: it has no 'model'", origin_);
    }
    const Object* pre = member(file, "pre_tokenizer");
    const Object* decoder = member(file, "decoder");
    out_.byte_level = mentions(pre, "ByteLevel") || mentions(decoder, "ByteLevel");
    read_model(file["model"]);
    read_added(file);
    const HfStepsReader steps(origin_);
    if (const Object* node = member(file, "normalizer")) {
      steps.read_normalizer(*node, out_.normalizer);
    }
    if (pre != nullptr) steps.read_split(*pre, out_.splits);
    if (decoder != nullptr) steps.read_decoder(*decoder, out_.decoding);
    if (const Object* post = member(file, "post_processor")) read_post_processor(*post);
  }

 private:
  static bool mentions(const Object* node, const std::string& type) {
    if (node == nullptr) return false;
    if (node->is_object() && node->value("type", Object()) == type) return true;
    return (node->is_object() || node->is_array()) &&
           std::any_of(node->begin(), node->end(),
                       [&](const Object& child) { return mentions(&child, type); });
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
