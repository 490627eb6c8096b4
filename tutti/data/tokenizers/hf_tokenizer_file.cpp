#include "tutti/data/tokenizers/hf_tokenizer_file.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/data/tokenizers/hf_model_reader.h"
#include "tutti/data/tokenizers/hf_steps_reader.h"

namespace tutti::data {
namespace {

constexpr int kMostNesting = 64;  // tokenizer.json has 8

class FileReader : private HfReader {
 public:
  using HfReader::HfReader;

  HfTokenizerFile read(const HfObject& file) const {
    if (!file.is_object() || member(file, "model") == nullptr) {
      fail(ErrorKind::corrupt, "'{}': this is not a tokenizer.json: it has no 'model'", origin_);
    }
    HfTokenizerFile out;
    const HfObject* pre = member(file, "pre_tokenizer");
    const HfObject* decoder = member(file, "decoder");
    out.byte_level = mentions(pre, "ByteLevel") || mentions(decoder, "ByteLevel");
    HfModelReader model(origin_, out.byte_level);
    out.model = model.read(file["model"]);
    read_added(file, model, out.added);
    const HfStepsReader steps(origin_);
    if (const HfObject* node = member(file, "normalizer")) {
      steps.read_normalizer(*node, out.normalizer);
    }
    if (pre != nullptr) steps.read_split(*pre, out.splits);
    if (decoder != nullptr) {
      steps.read_decoder(*decoder, out.decoder);
    } else {
      out.decoder.push_back(
          {out.byte_level ? DecodeStep::Kind::fuse : DecodeStep::Kind::space_between});
    }
    if (const HfObject* node = member(file, "post_processor")) {
      steps.read_post_processor(*node, out.begin);
    }
    return out;
  }

 private:
  static bool mentions(const HfObject* node, const std::string& type) {
    if (node == nullptr) return false;
    if (node->is_object()) {
      const HfObject* own = member(*node, "type");
      if (own != nullptr && *own == type) return true;
    }
    return (node->is_object() || node->is_array()) &&
           std::any_of(node->begin(), node->end(),
                       [&](const HfObject& child) { return mentions(&child, type); });
  }

  void read_added(const HfObject& file, HfModelReader& model,
                  std::vector<AddedToken>& added) const {
    if (member(file, "added_tokens") == nullptr) return;
    for (const HfObject& entry : get<std::vector<HfObject>>(file, "added_tokens")) {
      AddedToken token;
      token.content = get<std::string>(entry, "content");
      const HfObject* id = member(entry, "id");
      token.id = model.take_id(id == nullptr ? HfObject() : *id, token.content);
      token.special = get_or<bool>(entry, "special", false);
      token.single_word = get_or<bool>(entry, "single_word", false);
      token.strip_left = get_or<bool>(entry, "lstrip", false);
      token.strip_right = get_or<bool>(entry, "rstrip", false);
      token.normalized = get_or<bool>(entry, "normalized", !token.special);
      added.push_back(std::move(token));
    }
  }
};

// Readers of values go down as deep as these are nested.
void check_nesting(std::string_view bytes, const std::string& origin) {
  int depth = 0;
  bool text = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (text) {
      if (c == '\\') ++i;
      if (c == '"') text = false;
    } else if (c == '"') {
      text = true;
    } else if (c == '[' || c == '{') {
      if (++depth <= kMostNesting) continue;
      fail(ErrorKind::corrupt,
           "'{}': this is not a tokenizer.json: values are nested {} deep at {}", origin, depth, i);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace

int32_t find_hf_token(const HfTokenizerFile& file, const std::string& content) {
  for (const AddedToken& token : file.added) {
    if (token.content == content) return token.id;
  }
  for (const auto& [token, id] : file.model.tokens) {
    if (token == content) return id;
  }
  return -1;
}

HfTokenizerFile read_hf_tokenizer(std::string_view bytes, const std::string& origin) {
  check_nesting(bytes, origin);
  HfObject file;
  try {
    file = HfObject::parse(bytes);
  } catch (const HfObject::exception& error) {
    fail(ErrorKind::corrupt, "'{}': not valid JSON: {}", origin, error.what());
  }
  return FileReader(origin).read(file);
}

}  // namespace tutti::data
