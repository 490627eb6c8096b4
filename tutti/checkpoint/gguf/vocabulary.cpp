#include "tutti/checkpoint/gguf/vocabulary.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/pretty_json.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/gguf/config.h"
#include "tutti/checkpoint/gguf/pieces.h"

namespace tutti::checkpoint {
namespace {

enum TokenKind : int32_t {
  token_normal = 1,
  token_unknown,
  token_control,
  token_user,
  token_unused,
  token_byte
};

// Pre-tokenization: the regular expression of a tokenizer.json, and its name in llama.cpp.
struct PreTokenizer {
  const char* name;
  const char* expression;  // null: ByteLevel's own
};
constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", nullptr},
    {"llama-bpe",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

struct Vocabulary {
  std::string model = "no_vocab";
  std::string pre;
  Json tokens = Json::array(), kinds = Json::array(), scores = Json::array(),
       merges = Json::array();
  std::map<std::string, int64_t> ids;
  bool space_prefix = false;
  bool begins = false;
};

Json parsed(FileSystem& files, const std::string& folder, const char* name) {
  const std::string path = join_path(folder, name);
  return files.exists(path) ? parse_json(read_file(files, path), path) : Json::object();
}

// All expressions that pre_tokenizer splits by, and whether ByteLevel uses its own.
void find_splits(const Json& node, std::vector<std::string>& expressions, bool& byte_level,
                 bool& own) {
  if (node.is_array()) {
    for (const Json& item : node) find_splits(item, expressions, byte_level, own);
    return;
  }
  if (!node.is_object()) return;
  const std::string type = node.value("type", std::string());
  if (type == "ByteLevel") {
    byte_level = true;
    own = own || node.value("use_regex", true);
  } else if (type == "Sequence" && node.contains("pretokenizers")) {
    find_splits(node["pretokenizers"], expressions, byte_level, own);
  } else if (type == "Split" && node.contains("pattern") && node["pattern"].contains("Regex")) {
    expressions.push_back(node["pattern"]["Regex"].get<std::string>());
  } else {
    expressions.push_back(type);
  }
}

std::string pre_tokenizer_of(const Json& file, const std::string& path) {
  std::vector<std::string> expressions;
  bool byte_level = false;
  bool own = false;
  find_splits(file.value("pre_tokenizer", Json()), expressions, byte_level, own);
  if (byte_level && own) expressions.emplace_back();
  for (const PreTokenizer& known : kPreTokenizers) {
    const std::string expression = known.expression == nullptr ? "" : known.expression;
    if (byte_level && expressions.size() == 1 && expressions.front() == expression)
      return known.name;
  }
  fail(ErrorKind::unsupported,
       "'{}': pre_tokenizer splits text unlike gpt-2, llama-bpe and qwen2, which GGUF "
       "files can name; export without a tokenizer (--tokenizer none)",
       path);
}

void put_token(Vocabulary& out, int64_t id, const std::string& text, int32_t kind, int64_t size,
               const std::string& path) {
  if (id < 0 || id >= size) {
    fail(ErrorKind::unsupported, "'{}': the token '{}' has the id {}, but the model has {} tokens",
         path, printable(text), id, size);
  }
  out.tokens[static_cast<size_t>(id)] = text;
  out.kinds[static_cast<size_t>(id)] = kind;
  out.ids[text] = id;
}

void start_vocabulary(Vocabulary& out, int64_t size) {
  for (int64_t id = 0; id < size; ++id) {
    out.tokens.push_back(fmt::format("[PAD{}]", id));
    out.kinds.push_back(static_cast<int32_t>(token_unused));
  }
}

void put_added(Vocabulary& out, const Json& file, int64_t size, const std::string& path) {
  for (const Json& token : file.value("added_tokens", Json::array())) {
    const bool special = token.value("special", false);
    put_token(out, json_get<int64_t>(token, "id", path),
              json_get<std::string>(token, "content", path), special ? token_control : token_user,
              size, path);
  }
}

void read_byte_level(const Json& file, int64_t size, const std::string& path, Vocabulary& out) {
  const auto model = json_get<Json>(file, "model", path);
  if (model.value("type", std::string()) != "BPE") {
    fail(ErrorKind::unsupported,
         "'{}': GGUF files can only contain BPE models; export without a tokenizer", path);
  }
  out.model = "gpt2";
  out.pre = pre_tokenizer_of(file, path);
  start_vocabulary(out, size);
  const auto vocabulary = json_get<Json>(model, "vocab", path);
  for (const auto& token : vocabulary.items()) {
    put_token(out, token.value().get<int64_t>(), token.key(), token_normal, size, path);
  }
  put_added(out, file, size, path);
  for (const Json& merge : json_get<Json>(model, "merges", path)) {
    out.merges.push_back(merge.is_array()
                             ? merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>()
                             : merge.get<std::string>());
  }
}

void read_sentencepiece(std::string_view bytes, const Json& tokenizer, int64_t size,
                        const std::string& path, Vocabulary& out) {
  const PieceModel model = read_pieces(bytes, path);
  if (model.model_type != 2) {
    fail(ErrorKind::unsupported,
         "'{}': GGUF files can only contain SentencePiece models of type BPE; export without a "
         "tokenizer",
         path);
  }
  out.model = "llama";
  out.pre = "default";
  out.space_prefix = model.dummy_prefix;
  start_vocabulary(out, size);
  for (int64_t id = 0; id < size; ++id) out.scores.push_back(-1000.0);
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    put_token(out, static_cast<int64_t>(id), piece.text, piece.kind, size, path);
    out.scores[id] = piece.score;
  }
  put_added(out, tokenizer, size, path);
}

// A token that tokenizer_config.json names, or the id in config.json.
std::optional<int64_t> control_id(const Json& settings, const Json& config, const char* name,
                                  const Vocabulary& out) {
  Json token = settings.value(std::string(name) + "_token", Json());
  if (token.is_object()) token = token.value("content", Json());
  if (token.is_string() && out.ids.count(token.get<std::string>()) > 0)
    return out.ids.at(token.get<std::string>());
  Json id = config.value(std::string(name) + "_token_id", Json());
  if (id.is_array() && !id.empty()) id = id[0];
  if (!id.is_number_integer()) return std::nullopt;
  const auto value = id.get<int64_t>();
  return value >= 0 && value < static_cast<int64_t>(out.tokens.size()) ? std::optional(value)
                                                                       : std::nullopt;
}

GgufValue list_of(GgufKind element, Json values) {
  return {GgufKind::array, element, std::move(values)};
}

void write_text(FileSystem& files, const std::string& folder, const char* name,
                const std::string& text) {
  write_file_atomic(files, join_path(folder, name), text);
}

const Json& array_of(const GgufFile& file, const char* key, size_t size) {
  const Json* found = file.find(key);
  if (found == nullptr || !found->is_array() || (size > 0 && found->size() != size)) {
    fail(ErrorKind::corrupt, "'{}': '{}' is {}", file.path(), key,
         found == nullptr ? "absent" : "not a list with one item per token");
  }
  return *found;
}

bool is_text_list(const Json& list) {
  return std::all_of(list.begin(), list.end(), [](const Json& item) { return item.is_string(); });
}

std::string text_at(const GgufFile& file, const char* key) {
  const Json* found = file.find(key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

int64_t id_at(const GgufFile& file, const char* key, size_t size) {
  const Json* found = file.find(key);
  if (found == nullptr || !found->is_number_integer()) return -1;
  const auto id = found->get<int64_t>();
  return id >= 0 && id < static_cast<int64_t>(size) ? id : -1;
}

bool flag_at(const GgufFile& file, const char* key, bool fallback) {
  const Json* found = file.find(key);
  return found != nullptr && found->is_boolean() ? found->get<bool>() : fallback;
}

// tokenizer.json of byte-level BPE. Empty if its pre-tokenization has no name here.
std::optional<Json> byte_level_file(const GgufFile& file, const Json& tokens, const Json& kinds) {
  const std::string pre = text_at(file, "tokenizer.ggml.pre");
  const auto* known = std::find_if(std::begin(kPreTokenizers), std::end(kPreTokenizers),
                                   [&](const PreTokenizer& one) { return pre == one.name; });
  if (known == std::end(kPreTokenizers)) return std::nullopt;
  Json vocabulary = Json::object();
  Json added = Json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int64_t kind =
        kinds[id].is_number_integer() ? kinds[id].get<int64_t>() : int64_t{token_normal};
    if (kind == token_unused) continue;
    if (kind == token_control || kind == token_user) {
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", kind == token_control}});
    } else {
      vocabulary[tokens[id].get<std::string>()] = id;
    }
  }
  Json split = {{"type", "ByteLevel"},
                {"add_prefix_space", false},
                {"trim_offsets", true},
                {"use_regex", known->expression == nullptr}};
  if (known->expression != nullptr) {
    const Json first = {{"type", "Split"},
                        {"pattern", {{"Regex", known->expression}}},
                        {"behavior", "Isolated"},
                        {"invert", false}};
    split = {{"type", "Sequence"}, {"pretokenizers", Json::array({first, split})}};
  }
  return Json{{"version", "1.0"},
              {"added_tokens", added},
              {"normalizer", nullptr},
              {"pre_tokenizer", split},
              {"post_processor", nullptr},
              {"decoder",
               {{"type", "ByteLevel"},
                {"add_prefix_space", true},
                {"trim_offsets", true},
                {"use_regex", true}}},
              {"model",
               {{"type", "BPE"},
                {"vocab", vocabulary},
                {"merges", array_of(file, "tokenizer.ggml.merges", 0)}}}};
}

std::string sentencepiece_file(const GgufFile& file, const Json& tokens, const Json& kinds) {
  const Json& scores = array_of(file, "tokenizer.ggml.scores", tokens.size());
  PieceModel model;
  model.model_type = 2;
  model.dummy_prefix = flag_at(file, "tokenizer.ggml.add_space_prefix", true);
  int64_t unknown = 0;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const auto kind =
        kinds[id].is_number_integer() ? kinds[id].get<int32_t>() : int32_t{token_normal};
    model.pieces.push_back({tokens[id].get<std::string>(),
                            scores[id].is_number() ? scores[id].get<float>() : 0.0F, kind});
    if (kind == token_unknown) unknown = static_cast<int64_t>(id);
  }
  return write_pieces(model, unknown, id_at(file, "tokenizer.ggml.bos_token_id", tokens.size()),
                      id_at(file, "tokenizer.ggml.eos_token_id", tokens.size()));
}

}  // namespace

void append_vocabulary(FileSystem& files, const std::string& folder, const Json& config,
                       GgufMetadata& metadata, std::vector<std::string>& notes) {
  const Json tokenizer = parsed(files, folder, "tokenizer.json");
  const Json settings = parsed(files, folder, "tokenizer_config.json");
  const auto size = json_get<int64_t>(config, "vocab_size", "config.json");
  const std::string pieces = join_path(folder, "tokenizer.model");
  Vocabulary vocabulary;
  if (files.exists(pieces)) {
    read_sentencepiece(read_file(files, pieces), tokenizer, size, pieces, vocabulary);
  } else if (!tokenizer.empty()) {
    read_byte_level(tokenizer, size, join_path(folder, "tokenizer.json"), vocabulary);
  }
  metadata.emplace_back("tokenizer.ggml.model", gguf_text(vocabulary.model));
  if (vocabulary.model == "no_vocab") {
    notes.emplace_back("the GGUF file has no tokenizer: the run has none of Hugging Face's kind");
    return;
  }
  metadata.emplace_back("tokenizer.ggml.pre", gguf_text(vocabulary.pre));
  metadata.emplace_back("tokenizer.ggml.tokens", list_of(GgufKind::string, vocabulary.tokens));
  metadata.emplace_back("tokenizer.ggml.token_type", list_of(GgufKind::i32, vocabulary.kinds));
  if (vocabulary.model == "gpt2") {
    metadata.emplace_back("tokenizer.ggml.merges", list_of(GgufKind::string, vocabulary.merges));
  } else {
    metadata.emplace_back("tokenizer.ggml.scores", list_of(GgufKind::f32, vocabulary.scores));
    metadata.emplace_back("tokenizer.ggml.add_space_prefix", gguf_flag(vocabulary.space_prefix));
  }
  for (const auto& [name, key] : {std::pair("bos", "tokenizer.ggml.bos_token_id"),
                                  std::pair("eos", "tokenizer.ggml.eos_token_id"),
                                  std::pair("unk", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("pad", "tokenizer.ggml.padding_token_id")}) {
    const auto id = control_id(settings, config, name, vocabulary);
    if (id) metadata.emplace_back(key, gguf_u32(*id));
  }
  const bool template_begins =
      tokenizer.contains("post_processor") &&
      dump_json(tokenizer["post_processor"]).find("SpecialToken") != std::string::npos;
  const bool begins =
      settings.value("add_bos_token", Json(vocabulary.model == "llama" || template_begins)) == true;
  metadata.emplace_back("tokenizer.ggml.add_bos_token", gguf_flag(begins));
  metadata.emplace_back("tokenizer.ggml.add_eos_token", gguf_flag(false));
  const std::string chat = join_path(folder, "chat_template.jinja");
  if (files.exists(chat)) {
    metadata.emplace_back("tokenizer.chat_template", gguf_text(read_file(files, chat)));
  } else if (settings.contains("chat_template") && settings["chat_template"].is_string()) {
    metadata.emplace_back("tokenizer.chat_template",
                          gguf_text(settings["chat_template"].get<std::string>()));
  }
}

void write_vocabulary(FileSystem& files, const GgufFile& file, const std::string& folder,
                      Json& config, std::vector<std::string>& notes) {
  const std::string model = text_at(file, "tokenizer.ggml.model");
  if (model != "gpt2" && model != "llama") {
    notes.push_back(fmt::format(
        "the tokenizer '{}' of the GGUF file is not supported; accepted: gpt2, llama", model));
    return;
  }
  const Json& tokens = array_of(file, "tokenizer.ggml.tokens", 0);
  const Json& kinds = array_of(file, "tokenizer.ggml.token_type", tokens.size());
  if (!is_text_list(tokens)) {
    fail(ErrorKind::corrupt, "'{}': 'tokenizer.ggml.tokens' is not a list of strings", file.path());
  }
  if (model == "gpt2") {
    const auto tokenizer = byte_level_file(file, tokens, kinds);
    if (!tokenizer) {
      notes.push_back(
          fmt::format("the pre-tokenizer '{}' of the GGUF file is not supported; accepted: gpt-2, "
                      "llama-bpe, qwen2",
                      text_at(file, "tokenizer.ggml.pre")));
      return;
    }
    write_text(files, folder, "tokenizer.json", tokenizer->dump());
  } else {
    write_text(files, folder, "tokenizer.model", sentencepiece_file(file, tokens, kinds));
  }
  Json settings = {
      {"add_bos_token", flag_at(file, "tokenizer.ggml.add_bos_token", model == "llama")}};
  for (const auto& [name, key] : {std::pair("bos", "tokenizer.ggml.bos_token_id"),
                                  std::pair("eos", "tokenizer.ggml.eos_token_id"),
                                  std::pair("unk", "tokenizer.ggml.unknown_token_id"),
                                  std::pair("pad", "tokenizer.ggml.padding_token_id")}) {
    const int64_t id = id_at(file, key, tokens.size());
    if (id < 0) continue;
    settings[std::string(name) + "_token"] = tokens[static_cast<size_t>(id)];
    config[std::string(name) + "_token_id"] = id;
  }
  if (const std::string chat = text_at(file, "tokenizer.chat_template"); !chat.empty()) {
    settings["chat_template"] = chat;
  }
  write_text(files, folder, "tokenizer_config.json", pretty_json(settings));
}

}  // namespace tutti::checkpoint
