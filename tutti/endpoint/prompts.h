// From what a request says to the tokens that a model continues, and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/endpoint/model.h"
#include "tutti/endpoint/openai_request.h"

namespace tutti::endpoint {

// Text as the start of a document. Control tokens that it spells are control tokens, as in vLLM:
// prompts of completions are written by programs that know the model. `add_special_tokens`: begins
// with the tokens that a document begins with. Throws ApiError 400 without a tokenizer.
std::vector<int32_t> encode_text(const LoadedModel& model, std::string_view text,
                                 bool add_special_tokens);

// A conversation through the model's chat template. What messages say never becomes a control
// token. Throws ApiError 400 without a template, and for what the template does not take.
std::vector<int32_t> encode_conversation(const LoadedModel& model,
                                         const chat::Conversation& conversation);

// The text of tokens. Throws ApiError 400 for ids outside the vocabulary.
std::string decode_tokens(const LoadedModel& model, const std::vector<int32_t>& tokens);

}  // namespace tutti::endpoint
