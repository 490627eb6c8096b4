// Which tokens start and end a document: stated by the user, or by the files beside a tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

struct TokenizerOptions {
  // Text may spell control tokens. Off, "<|endoftext|>" in a text is those characters and no
  // control token: what users write cannot end documents or open a turn of a conversation.
  bool special = false;
  // The token that ends a document: its text, "none", or "" for the one that the files beside the
  // tokenizer name (tokenizer_config.json, generation_config.json, config.json), or else the one
  // of its own file: SentencePiece's end of sentence; in a tokenizer.json the first of
  // <|endoftext|>,
  // <|end_of_text|>, </s>, <eos> that is a control token there. No such token: none.
  std::string end;
  // What starts a document: the text of a token, "auto" for what the tokenizer's own file
  // names or those beside it, "model" for what transformers puts before a text (the
  // post-processor's of a tokenizer.json; SentencePiece's begin of sentence, unless the
  // tokenizer_config.json beside it has add_bos_token false) or none where it puts none, or "" for
  // none.
  std::string begin;
};

struct ControlTokens {
  bool special = false;
  std::vector<int32_t> begin_of_document;  // in order; empty: none
  int32_t end_of_document = kNoToken;
};

bool is_control_token(const ControlTokens& controls, int32_t id);
// Throws corrupt naming `origin` for one that the vocabulary has not.
void check_control_tokens(const ControlTokens& controls, int32_t vocabulary,
                          const std::string& origin);

// What a tokenizer file says of itself; nothing or kNoToken where it does not.
struct OwnControlTokens {
  std::vector<int32_t> begin;
  int32_t end = kNoToken;
  bool puts_begin = false;  // transformers puts `begin` before a text
};

// `find` gives the id of a token's text or kNoToken; ids are below `vocabulary`. Throws usage for a
// token that does not exist, naming the option or the file that names it.
ControlTokens choose_control_tokens(FileSystem& files, const std::string& path,
                                    const TokenizerOptions& options, const OwnControlTokens& own,
                                    const std::function<int32_t(const std::string&)>& find,
                                    int32_t vocabulary);

// The file at `path`, called `as`, and those beside it that its users look for.
std::vector<OriginalFile> read_originals(FileSystem& files, const std::string& path,
                                         const char* as);

// Members of the stored form, as Tokenizer::describe.
void describe_control_tokens(const ControlTokens& controls, Json& object);
ControlTokens control_tokens_from_json(const Json& value, const std::string& origin);

}  // namespace tutti::data
