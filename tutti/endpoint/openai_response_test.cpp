#include "tutti/endpoint/openai_response.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/endpoint/openai_error.h"

namespace tutti::endpoint {
namespace {

AnswerHead head_of_route(Route route) {
  AnswerHead head;
  head.route = route;
  head.id = "id-1";
  head.model = "m";
  head.created = 5;
  return head;
}

AnswerPiece piece_with_token() {
  AnswerPiece piece;
  piece.index = 1;
  piece.text = "h\u00e9";
  piece.tokens = {{"h\xc3", -0.5F, {{"h\xc3", -0.5F}, {"x", -1.5F}}, 0},
                  {"\xa9", -INFINITY, {}, 1}};
  piece.finish_reason = "stop";
  return piece;
}

TEST(OpenaiResponse, WholeCompletions) {
  AnswerHead head = head_of_route(Route::completions);
  head.logprobs = true;
  const Json json = answer_json(head, {piece_with_token()}, {10, 4, 2});
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["choices"][0]["text"], "h\u00e9");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  const Json& logprobs = json["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json({"h\ufffd", "\ufffd"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json({-0.5, -9999.0}));
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1}));
  EXPECT_EQ(logprobs["top_logprobs"][0]["x"], -1.5);
  EXPECT_EQ(json["usage"], Json::parse(R"({"prompt_tokens": 10, "completion_tokens": 2,
      "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 4}})"));
}

TEST(OpenaiResponse, WholeChats) {
  AnswerHead head = head_of_route(Route::chat);
  const Json plain = answer_json(head, {piece_with_token()}, {});
  EXPECT_EQ(plain["object"], "chat.completion");
  EXPECT_EQ(plain["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(plain["choices"][0]["message"]["content"], "h\u00e9");
  EXPECT_TRUE(plain["choices"][0]["logprobs"].is_null());
  head.logprobs = true;
  const Json json = answer_json(head, {piece_with_token()}, {});
  const Json& token = json["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(token["bytes"], Json({0x68, 0xc3}));
  EXPECT_EQ(token["top_logprobs"].size(), 2U);
  EXPECT_EQ(token["top_logprobs"][1]["token"], "x");
}

TEST(OpenaiResponse, EventsOfAStream) {
  AnswerHead head = head_of_route(Route::chat);
  head.include_usage = true;
  EXPECT_EQ(role_event(head, 0)["choices"][0]["delta"]["role"], "assistant");
  const Json event = piece_event(head, piece_with_token());
  EXPECT_EQ(event["object"], "chat.completion.chunk");
  EXPECT_EQ(event["choices"][0]["index"], 1);
  EXPECT_EQ(event["choices"][0]["delta"]["content"], "h\u00e9");
  EXPECT_TRUE(event["usage"].is_null() && event.contains("usage"));
  AnswerPiece last;
  last.finish_reason = "length";
  EXPECT_EQ(piece_event(head, last)["choices"][0]["delta"], Json::object());
  EXPECT_EQ(usage_event(head, {1, 0, 2})["choices"], Json::array());
  EXPECT_EQ(usage_event(head, {1, 0, 2})["usage"]["total_tokens"], 3);
  EXPECT_FALSE(piece_event(head_of_route(Route::completions), last).contains("usage"));
  EXPECT_EQ(sse_event("{}"), "data: {}\n\n");
}

TEST(OpenaiResponse, Errors) {
  const HttpResponse response = error_response(ApiError(429, "full \"now\"", "", "queue_full"));
  EXPECT_EQ(response.status, 429);
  EXPECT_EQ(response.headers.at(0).first, "Retry-After");
  const Json json = Json::parse(response.body);
  EXPECT_EQ(json["error"]["message"], "full \"now\"");
  EXPECT_EQ(json["error"]["type"], "rate_limit_error");
  EXPECT_TRUE(json["error"]["param"].is_null());
  EXPECT_EQ(json["error"]["code"], "queue_full");
  EXPECT_EQ(Json::parse(error_json(ApiError(400, "m", "p")))["error"]["type"],
            "invalid_request_error");
}

}  // namespace
}  // namespace tutti::endpoint
