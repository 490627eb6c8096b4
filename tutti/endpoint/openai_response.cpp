#include "tutti/endpoint/openai_response.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/endpoint/answer_text.h"

namespace tutti::endpoint {
namespace {

constexpr double kLeastLogprob = -9999;  // JSON has no infinity; as vLLM writes it

double logprob_of(float value) {
  return std::isfinite(value) ? std::max<double>(value, kLeastLogprob) : kLeastLogprob;
}

Json bytes_json(const std::string& bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
  return list;
}

Json chat_token(const std::string& bytes, float logprob) {
  return {{"token", whole_characters(bytes)},
          {"logprob", logprob_of(logprob)},
          {"bytes", bytes_json(bytes)}};
}

Json chat_logprobs(const AnswerHead& head, const std::vector<AnswerToken>& tokens) {
  if (!head.logprobs) return nullptr;
  Json content = Json::array();
  for (const AnswerToken& token : tokens) {
    Json entry = chat_token(token.bytes, token.logprob);
    Json top = Json::array();
    for (const auto& one : token.top) top.push_back(chat_token(one.bytes, one.logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const AnswerHead& head, const std::vector<AnswerToken>& tokens) {
  if (!head.logprobs) return nullptr;
  Json result = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
  for (const AnswerToken& token : tokens) {
    const std::string text = whole_characters(token.bytes);
    result["tokens"].push_back(text);
    result["token_logprobs"].push_back(logprob_of(token.logprob));
    result["text_offset"].push_back(token.begin);
    Json top = Json::object();
    // Tokens that show as the same text share a member: the most likely keeps it.
    for (const auto& one : token.top) {
      top.emplace(whole_characters(one.bytes), logprob_of(one.logprob));
    }
    top.emplace(text, logprob_of(token.logprob));
    result["top_logprobs"].push_back(std::move(top));
  }
  return result;
}

Json reason_json(const std::string& reason) {
  return reason.empty() ? Json(nullptr) : Json(reason);
}

Json frame(const AnswerHead& head, const char* object) {
  return {{"id", head.id}, {"object", object}, {"created", head.created}, {"model", head.model}};
}

Json completion_choice(const AnswerHead& head, const AnswerPiece& piece) {
  return {{"index", piece.index},
          {"text", piece.text},
          {"logprobs", completion_logprobs(head, piece.tokens)},
          {"finish_reason", reason_json(piece.finish_reason)}};
}

Json chat_event(const AnswerHead& head, int64_t index, Json delta, Json logprobs,
                const std::string& reason) {
  Json event = frame(head, "chat.completion.chunk");
  event["choices"] = Json::array({{{"index", index},
                                   {"delta", std::move(delta)},
                                   {"logprobs", std::move(logprobs)},
                                   {"finish_reason", reason_json(reason)}}});
  if (head.include_usage) event["usage"] = nullptr;
  return event;
}

}  // namespace

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json answer_json(const AnswerHead& head, const std::vector<AnswerPiece>& choices,
                 const Usage& usage) {
  const bool is_chat = head.route == Route::chat;
  Json answer = frame(head, is_chat ? "chat.completion" : "text_completion");
  Json list = Json::array();
  for (const AnswerPiece& piece : choices) {
    if (!is_chat) {
      list.push_back(completion_choice(head, piece));
      continue;
    }
    list.push_back(
        {{"index", piece.index},
         {"message", {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}}},
         {"logprobs", chat_logprobs(head, piece.tokens)},
         {"finish_reason", reason_json(piece.finish_reason)}});
  }
  answer["choices"] = std::move(list);
  answer["usage"] = usage_json(usage);
  return answer;
}

Json role_event(const AnswerHead& head, int64_t index) {
  return chat_event(head, index, {{"role", "assistant"}, {"content", ""}}, nullptr, "");
}

Json piece_event(const AnswerHead& head, const AnswerPiece& piece) {
  if (head.route == Route::chat) {
    Json delta = Json::object();
    if (!piece.text.empty() || piece.finish_reason.empty()) delta["content"] = piece.text;
    Json logprobs = piece.tokens.empty() ? Json(nullptr) : chat_logprobs(head, piece.tokens);
    return chat_event(head, piece.index, std::move(delta), std::move(logprobs),
                      piece.finish_reason);
  }
  Json event = frame(head, "text_completion");
  event["choices"] = Json::array({completion_choice(head, piece)});
  if (head.include_usage) event["usage"] = nullptr;
  return event;
}

Json usage_event(const AnswerHead& head, const Usage& usage) {
  Json event = frame(head, head.route == Route::chat ? "chat.completion.chunk" : "text_completion");
  event["choices"] = Json::array();
  event["usage"] = usage_json(usage);
  return event;
}

std::string sse_event(const std::string& data) { return "data: " + data + "\n\n"; }

}  // namespace tutti::endpoint
