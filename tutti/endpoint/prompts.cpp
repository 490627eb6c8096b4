#include "tutti/endpoint/prompts.h"

#include "tutti/base/error.h"
#include "tutti/chat/text.h"
#include "tutti/endpoint/answer_text.h"
#include "tutti/endpoint/openai_error.h"

namespace tutti::endpoint {
namespace {

const data::Tokenizer& tokenizer_of(const LoadedModel& model) {
  if (model.tokenizer == nullptr) {
    throw ApiError(400, "the model has no tokenizer: give its prompt as token ids", "prompt",
                   "no_tokenizer");
  }
  return *model.tokenizer;
}

std::vector<int32_t> encoded(const data::Tokenizer& tokenizer, const chat::Text& text,
                             const std::vector<int32_t>& guarded, std::vector<int32_t> tokens,
                             const char* param) {
  try {
    tokenizer.encode_chat(text.bytes, text.origins, guarded, false, tokens);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), param);
  }
  return tokens;
}

}  // namespace

std::vector<int32_t> encode_text(const LoadedModel& model, std::string_view text,
                                 bool add_special_tokens) {
  const data::Tokenizer& tokenizer = tokenizer_of(model);
  if (text.empty() && add_special_tokens) return data::encode_start(tokenizer, text);
  return encoded(tokenizer, chat::Text(text), {},
                 add_special_tokens ? tokenizer.begin_of_document() : std::vector<int32_t>(),
                 "prompt");
}

std::vector<int32_t> encode_conversation(const LoadedModel& model,
                                         const chat::Conversation& conversation) {
  const data::Tokenizer& tokenizer = tokenizer_of(model);
  if (model.chat_template == nullptr) {
    throw ApiError(400,
                   "the model has no chat template; use /v1/completions, or serve a folder with "
                   "a chat_template.jinja",
                   "messages", "no_chat_template");
  }
  try {
    const chat::Rendered rendered = model.chat_template->render(conversation);
    return encoded(tokenizer, rendered.text,
                   tokenizer.spelled_tokens(model.chat_template->literals()), {}, "messages");
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "messages");
  }
}

std::string decode_tokens(const LoadedModel& model, const std::vector<int32_t>& tokens) {
  const data::Tokenizer& tokenizer = tokenizer_of(model);
  try {
    return whole_characters(tokenizer.decode(tokens));
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "tokens");
  }
}

}  // namespace tutti::endpoint
