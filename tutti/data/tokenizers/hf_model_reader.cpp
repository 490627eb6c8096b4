#include "tutti/data/tokenizers/hf_model_reader.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

constexpr int64_t kMostId = int64_t{1} << 22;  // far above any vocabulary; what is kept is by id

// GPT-2's alphabet: a byte that is printable in Latin-1 is that character, the others are U+0100
// onwards in order of the bytes.
const std::vector<int>& bytes_of_alphabet() {
  static const std::vector<int> bytes = [] {
    std::vector<int> byte_of(0x144, -1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable_byte =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      byte_of[static_cast<size_t>(printable_byte ? byte : next++)] = byte;
    }
    return byte_of;
  }();
  return bytes;
}

// A token as bytes; false when it is not spelled in the alphabet of bytes.
bool to_bytes(const std::string& token, std::string& bytes) {
  const std::vector<int>& byte_of = bytes_of_alphabet();
  bytes.clear();
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = decode_utf8(token, at);
    at += c.bytes;
    if (c.value >= byte_of.size() || byte_of[c.value] < 0) return false;
    bytes += static_cast<char>(byte_of[c.value]);
  }
  return true;
}

}  // namespace

int32_t HfModelReader::take_id(const HfObject& value, const std::string& token) {
  if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= kMostId) {
    damaged(fmt::format("token \"{}\" has the id {}; ids are numbers from 0 to {}",
                        printable(token), shown(value), kMostId - 1));
  }
  const auto id = value.get<int32_t>();
  const auto [known, fresh] = names_.emplace(id, token);
  if (!fresh && known->second != token) {
    damaged(fmt::format("tokens \"{}\" and \"{}\" have the same id {}", printable(known->second),
                        printable(token), id));
  }
  return id;
}

std::string HfModelReader::symbol(const std::string& token) const {
  std::string bytes;
  return byte_level_ && to_bytes(token, bytes) ? bytes : token;
}

// Files of old do not say it.
std::string HfModelReader::model_type(const HfObject& model) const {
  if (!model.is_object()) damaged("'model' is not an object");
  if (member(model, "type") != nullptr) return get<std::string>(model, "type");
  const HfObject* vocabulary = member(model, "vocab");
  if (vocabulary != nullptr && vocabulary->is_array()) return "Unigram";
  if (member(model, "merges") != nullptr) return "BPE";
  return member(model, "max_input_chars_per_word") != nullptr ? "WordPiece" : "WordLevel";
}

HfModelFile HfModelReader::read(const HfObject& model) {
  const std::string type = model_type(model);
  HfModelFile out;
  if (type == "BPE") {
    read_bpe(model, out);
  } else if (type == "Unigram") {
    read_unigram(model, out);
  } else if (type == "WordPiece") {
    out.kind = HfModelKind::word_piece;
    out.continuation = get_or<std::string>(model, "continuing_subword_prefix", "##");
    out.most_chars = std::max<int64_t>(0, get_or<int64_t>(model, "max_input_chars_per_word", 100));
    read_tokens(model, get_or<std::string>(model, "unk_token", "[UNK]"), out);
  } else if (type == "WordLevel") {
    out.kind = HfModelKind::word_level;
    read_tokens(model, get_or<std::string>(model, "unk_token", "<unk>"), out);
  } else {
    refuse("model.type", type, "BPE, Unigram, WordPiece, WordLevel");
  }
  if (type != "BPE" && byte_level_) {
    fail(ErrorKind::unsupported,
         "'{}': model.type '{}' with the pre-tokenizer or decoder ByteLevel is not supported (BPE "
         "is); "
         "use a corpus that was tokenized elsewhere, in Megatron-LM's format",
         origin_, type);
  }
  return out;
}

const HfObject& HfModelReader::vocabulary_of(const HfObject& model) const {
  const HfObject* vocabulary = member(model, "vocab");
  if (vocabulary == nullptr) damaged("model.vocab is missing");
  return *vocabulary;
}

void HfModelReader::read_tokens(const HfObject& model, const std::string& unknown,
                                HfModelFile& out) {
  const HfObject& vocabulary = vocabulary_of(model);
  if (!vocabulary.is_object()) damaged("model.vocab is not an object of tokens");
  for (const auto& [token, value] : vocabulary.items()) {
    if (value.is_number_integer() && names_.count(value.get<int32_t>()) != 0) {
      damaged(fmt::format("tokens \"{}\" and \"{}\" have the same id {}",
                          printable(names_[value.get<int32_t>()]), printable(token), shown(value)));
    }
    const int32_t id = take_id(value, token);
    out.tokens.emplace_back(symbol(token), id);
    if (token == unknown) out.unknown = id;
  }
  std::sort(out.tokens.begin(), out.tokens.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
}

void HfModelReader::read_bpe(const HfObject& model, HfModelFile& out) {
  if (get_or<double>(model, "dropout", 0) != 0) {
    refuse("model.dropout", shown(*member(model, "dropout")), "only 0");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto text = get_or<std::string>(model, key, "");
    if (!text.empty()) refuse(std::string("model.") + key, text);
  }
  out.bpe.bytes = byte_level_;
  // Never needed on bytes.
  out.bpe.byte_fallback = !byte_level_ && get_or<bool>(model, "byte_fallback", false);
  out.bpe.whole_words = get_or<bool>(model, "ignore_merges", false);
  out.bpe.fuse_unknown = get_or<bool>(model, "fuse_unk", false);
  read_tokens(model, get_or<std::string>(model, "unk_token", ""), out);
  out.bpe.unknown = out.unknown;
  read_merges(model, out);
}

void HfModelReader::read_merges(const HfObject& model, HfModelFile& out) const {
  const HfObject* merges = member(model, "merges");
  if (merges == nullptr || !merges->is_array()) damaged("model.merges is not a list");
  for (const HfObject& merge : *merges) {
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
      damaged(fmt::format("merge {} is {}; it is two tokens with a space between",
                          out.merges.size(), shown(merge)));
    }
    out.merges.emplace_back(symbol(left), symbol(right));
  }
}

void HfModelReader::read_unigram(const HfObject& model, HfModelFile& out) {
  out.kind = HfModelKind::unigram;
  out.byte_fallback = get_or<bool>(model, "byte_fallback", false);
  const HfObject& vocabulary = vocabulary_of(model);
  if (!vocabulary.is_array()) damaged("model.vocab is not a list of tokens and scores");
  for (const HfObject& entry : vocabulary) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      damaged(fmt::format("model.vocab has {} at {}; an entry is a token and its score",
                          shown(entry), out.tokens.size()));
    }
    const auto token = entry[0].get<std::string>();
    out.tokens.emplace_back(token, take_id(HfObject(out.tokens.size()), token));
    out.scores.push_back(entry[1].get<double>());
  }
  const HfObject* unknown = member(model, "unk_id");
  if (unknown == nullptr) return;
  if (!unknown->is_number_integer() || *unknown < 0 || *unknown >= out.tokens.size()) {
    damaged(fmt::format("model.unk_id is {}; the vocabulary has the ids 0 to {}", shown(*unknown),
                        static_cast<int64_t>(out.tokens.size()) - 1));
  }
  out.unknown = unknown->get<int32_t>();
}

}  // namespace tutti::data
