// Answers in the form of OpenAI's API: as a whole, and as the events of a stream (SSE). Pure: from
// values to text. Source: OpenAI's API reference, "Completions" and "Chat"; WHATWG HTML, "Server-
// sent events".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/endpoint/openai_request.h"

namespace tutti::endpoint {

// A token of an answer, for log probabilities.
struct AnswerToken {
  struct Alternative {
    std::string bytes;
    float logprob = 0;
  };
  std::string bytes;
  float logprob = 0;
  std::vector<Alternative> top;  // most likely first
  size_t begin = 0;              // in the answer's text
};

// What is new of a choice; of a whole answer, all of it.
struct AnswerPiece {
  int64_t index = 0;  // of the choice
  std::string text;
  std::vector<AnswerToken> tokens;
  std::string finish_reason;  // empty: it continues
};

struct AnswerHead {
  Route route = Route::completions;
  std::string id;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  bool logprobs = false;
  int top_logprobs = 0;
  bool include_usage = false;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them
  int64_t completion_tokens = 0;
};

Json usage_json(const Usage& usage);

// The whole answer.
Json answer_json(const AnswerHead& head, const std::vector<AnswerPiece>& choices,
                 const Usage& usage);

// Events of a stream. A chat begins each choice with its role.
Json role_event(const AnswerHead& head, int64_t index);
Json piece_event(const AnswerHead& head, const AnswerPiece& piece);
Json usage_event(const AnswerHead& head, const Usage& usage);

std::string sse_event(const std::string& data);  // data: ...
inline constexpr const char* kDoneEvent = "data: [DONE]\n\n";

}  // namespace tutti::endpoint
