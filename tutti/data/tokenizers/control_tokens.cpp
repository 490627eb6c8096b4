#include "tutti/data/tokenizers/control_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

constexpr const char* kCompanions[] = {"tokenizer_config.json", "special_tokens_map.json",
                                       "generation_config.json"};

using FindToken = std::function<int32_t(const std::string&)>;

int32_t existing_token(const std::string& who, const std::string& content, const FindToken& find,
                       const std::string& path) {
  const int32_t id = find(content);
  if (id == kNoToken) {
    fail(ErrorKind::usage, "{}: the tokenizer '{}' has no token \"{}\"", who, path,
         printable(content));
  }
  return id;
}

// What the files in the folder of `path` say about the token `kind`, "eos" or "bos".
int32_t discovered_token(FileSystem& files, const std::string& path, const std::string& kind,
                         const FindToken& find, int32_t vocabulary) {
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "config.json"}) {
    const std::string beside = join_path(parent_path(path), name);
    if (!files.exists(beside)) continue;
    const Json config = parse_json(read_file(files, beside), beside);
    if (!config.is_object()) continue;
    const Json text = config.value(kind + "_token", Json());
    const Json content = text.is_object() ? text.value("content", Json()) : text;
    if (content.is_string()) {
      return existing_token(fmt::format("{}: {}_token", beside, kind), content, find, path);
    }
    Json id = config.value(kind + "_token_id", Json());
    if (id.is_array() && !id.empty()) id = Json(id[0]);
    if (!id.is_number_integer() || id == Json(kNoToken)) continue;
    if (id < Json(0) || id >= Json(vocabulary)) {
      fail(ErrorKind::usage,
           "{}: {}_token_id is {}, but the tokenizer '{}' has the ids 0 to {}; name the token "
           "yourself, or none: --{}",
           beside, kind, id.dump(), path, vocabulary - 1, kind);
    }
    return id;
  }
  return kNoToken;
}

}  // namespace

ControlTokens choose_control_tokens(FileSystem& files, const std::string& path,
                                    const TokenizerOptions& options, const OwnControlTokens& own,
                                    const FindToken& find, int32_t vocabulary) {
  ControlTokens controls;
  controls.special = options.special;
  int32_t& end = controls.end_of_document;
  if (options.end.empty()) {
    end = discovered_token(files, path, "eos", find, vocabulary);
    if (end == kNoToken) end = own.end;
  } else if (options.end != "none") {
    end = existing_token("--eos", options.end, find, path);
  }
  std::vector<int32_t>& begin = controls.begin_of_document;
  if (options.begin == "auto") {
    begin = own.begin;
    const int32_t found =
        begin.empty() ? discovered_token(files, path, "bos", find, vocabulary) : kNoToken;
    if (found != kNoToken) begin = {found};
    if (begin.empty()) {
      fail(ErrorKind::usage, "--bos: the tokenizer '{}' names no token that starts a text", path);
    }
  } else if (options.begin == "model") {
    if (own.puts_begin) begin = own.begin;
  } else if (!options.begin.empty() && options.begin != "none") {
    begin = {existing_token("--bos", options.begin, find, path)};
  }
  return controls;
}

bool is_control_token(const ControlTokens& controls, int32_t id) {
  const auto& begin = controls.begin_of_document;
  return id == controls.end_of_document || std::find(begin.begin(), begin.end(), id) != begin.end();
}

void check_control_tokens(const ControlTokens& controls, int32_t vocabulary,
                          const std::string& origin) {
  std::vector<int32_t> ids = controls.begin_of_document;
  if (controls.end_of_document != kNoToken) ids.push_back(controls.end_of_document);
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocabulary) continue;
    fail(ErrorKind::corrupt, "'{}': the id {} of a control token is outside the vocabulary of {}",
         origin, id, vocabulary);
  }
}

std::vector<OriginalFile> read_originals(FileSystem& files, const std::string& path,
                                         const char* as) {
  std::vector<OriginalFile> originals = {{as, read_file(files, path)}};
  for (const char* name : kCompanions) {
    const std::string beside = join_path(parent_path(path), name);
    if (files.exists(beside)) originals.push_back({name, read_file(files, beside)});
  }
  return originals;
}

void describe_control_tokens(const ControlTokens& controls, Json& object) {
  const std::vector<int32_t>& begin = controls.begin_of_document;
  Json& stored = object["begin_of_document"];
  stored = begin.empty() ? Json(nullptr) : begin.size() == 1 ? Json(begin[0]) : Json(begin);
  object["special"] = controls.special;
}

ControlTokens control_tokens_from_json(const Json& value, const std::string& origin) {
  ControlTokens controls;
  controls.special = json_get<bool>(value, "special", origin);
  const auto id = [&](const char* key) {
    const auto member = json_get<Json>(value, key, origin);
    return member.is_null() ? kNoToken : json_get<int32_t>(value, key, origin);
  };
  if (json_get<Json>(value, "begin_of_document", origin).is_array()) {
    controls.begin_of_document = json_get<std::vector<int32_t>>(value, "begin_of_document", origin);
  } else if (const int32_t begin = id("begin_of_document"); begin != kNoToken) {
    controls.begin_of_document = {begin};
  }
  controls.end_of_document = id("end_of_document");
  return controls;
}

}  // namespace tutti::data
