// What a client asks for, read from the body of a request in the form of OpenAI's API, with vLLM's
// further parameters (top_k, min_p, repetition_penalty, ignore_eos, ...). null means absent.
// A parameter that cannot be met is refused by name; those of OpenAI's clients that change no text
// (user, metadata, ...) are read over. docs/endpoint.md has the table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/chat/conversation.h"
#include "tutti/endpoint/sampling.h"

namespace tutti::endpoint {

using Prompt = std::variant<std::string, std::vector<int32_t>>;  // text, or tokens

enum class Route : uint8_t { completions, chat };

inline constexpr int64_t kMostChoices = 128;  // prompts times n
inline constexpr size_t kMostStops = 4;

struct ApiRequest {
  Route route = Route::completions;
  std::string model;
  std::vector<Prompt> prompts;      // completions
  chat::Conversation conversation;  // chat
  bool add_special_tokens = true;   // completions: the text starts a document
  SamplingParams sampling;          // but max_tokens and stop_tokens
  std::optional<int64_t> max_tokens;
  std::optional<int64_t> seed;
  int64_t n = 1;
  std::vector<std::string> stops;
  std::vector<int32_t> stop_token_ids;  // besides the model's
  bool ignore_eos = false;              // the model's do not end the answer
  bool stream = false;
  bool include_usage = false;  // in the last event of a stream
  bool echo = false;
};

// The JSON object of a request's body. Throws ApiError 400.
Json parse_body(std::string_view body);

// Throws ApiError 400 naming the parameter.
ApiRequest parse_api_request(const Json& body, Route route);

// vLLM's /tokenize: a prompt, or messages; and /detokenize.
struct TokenizeRequest {
  std::string model;
  std::optional<std::string> prompt;
  chat::Conversation conversation;
  bool add_special_tokens = true;
  bool return_token_strs = false;
};
TokenizeRequest parse_tokenize(const Json& body);

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;
};
DetokenizeRequest parse_detokenize(const Json& body);

}  // namespace tutti::endpoint
