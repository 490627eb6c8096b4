#include "tutti/endpoint/openai_request.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/rng.h"
#include "tutti/endpoint/openai_error.h"

namespace tutti::endpoint {
namespace {

ApiRequest completion(const std::string& body) {
  return parse_api_request(parse_body(body), Route::completions);
}
ApiRequest chat(const std::string& body) {
  return parse_api_request(parse_body(body), Route::chat);
}

// The parameter that is refused, and its message behind a colon.
template <typename Call>
std::string refusal_of(const Call& call, const std::string& body) {
  try {
    call(body);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.param() + ": " + error.what();
  }
  ADD_FAILURE() << "accepted: " << body;
  return "";
}
std::string with(const std::string& members) { return R"({"prompt": "x", )" + members + "}"; }
std::string chat_with(const std::string& members) {
  return R"({"messages": [{"role": "user", "content": "x"}], )" + members + "}";
}

TEST(OpenaiRequest, ParametersAreRead) {
  const ApiRequest request = completion(with(
      R"("model": "m", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
      "n": 2, "stop": ["a", "b"], "seed": -3, "presence_penalty": 1, "frequency_penalty": -1,
      "repetition_penalty": 1.1, "logit_bias": {"50": -100}, "logprobs": 3, "echo": false,
      "stream": true, "stream_options": {"include_usage": true}, "user": "u", "best_of": 2,
      "stop_token_ids": [7], "ignore_eos": true)"));
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.max_tokens, 5);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.min_p, 0.1);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.seed, -3);
  EXPECT_EQ(request.sampling.presence_penalty, 1);
  EXPECT_EQ(request.sampling.frequency_penalty, -1);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.1);
  ASSERT_EQ(request.sampling.logit_bias.size(), 1U);
  EXPECT_EQ(request.sampling.logit_bias[0].first, 50);
  EXPECT_EQ(request.sampling.top_logprobs, 3);
  EXPECT_TRUE(request.stream && request.include_usage && request.ignore_eos);
  EXPECT_EQ(request.stop_token_ids, (std::vector<int32_t>{7}));
}

TEST(OpenaiRequest, PromptsHaveFourForms) {
  EXPECT_EQ(std::get<std::string>(completion(R"({"prompt": ""})").prompts.at(0)), "");
  EXPECT_EQ(completion(R"({"prompt": ["a", "b"]})").prompts.size(), 2U);
  const auto tokens = completion(R"({"prompt": [1, 2.0, 3]})").prompts;
  ASSERT_EQ(tokens.size(), 1U);
  EXPECT_EQ(std::get<std::vector<int32_t>>(tokens[0]), (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(completion(R"({"prompt": [[1], [2, 3]]})").prompts.size(), 2U);
  for (const char* body : {R"({"prompt": []})", R"({"prompt": 5})", R"({"prompt": ["a", 1]})",
                           R"({"prompt": [1, "a"]})", R"({"prompt": [1.5]})", R"({"prompt": [-1]})",
                           R"({"prompt": [2147483648]})", R"({"prompt": [["a"]]})",
                           R"({"prompt": {}})", R"({"prompt": null})", R"({})"}) {
    EXPECT_EQ(refusal_of(completion, body).substr(0, 8), "prompt: ") << body;
  }
}

TEST(OpenaiRequest, WrongTypesAndRangesNameTheParameter) {
  for (const char* member : {R"("max_tokens": 0)",
                             R"("max_tokens": "5")",
                             R"("max_tokens": 1.5)",
                             R"("max_tokens": 1e30)",
                             R"("max_tokens": 99999999999999999999)",
                             R"("temperature": -1)",
                             R"("temperature": 2.5)",
                             R"("temperature": "hot")",
                             R"("top_p": 0)",
                             R"("top_p": 1.1)",
                             R"("top_k": -2)",
                             R"("min_p": 2)",
                             R"("n": 0)",
                             R"("n": 129)",
                             R"("n": true)",
                             R"("stop": 5)",
                             R"("stop": [""])",
                             R"("stop": ["a","b","c","d","e"])",
                             R"("seed": "x")",
                             R"("presence_penalty": 3)",
                             R"("frequency_penalty": -3)",
                             R"("repetition_penalty": 0)",
                             R"("logit_bias": [])",
                             R"("logit_bias": {"x": 1})",
                             R"("logit_bias": {"1": 101})",
                             R"("logprobs": 21)",
                             R"("logprobs": true)",
                             R"("echo": "yes")",
                             R"("stream": 1)",
                             R"("stream_options": {})",
                             R"("model": 5)",
                             R"("suffix": "x")",
                             R"("best_of": 3)",
                             R"("response_format": {"type": "json_object"})",
                             R"("stop_token_ids": 5)",
                             R"("unheard_of": 1)"}) {
    const std::string text = member;
    const std::string name = text.substr(1, text.find('"', 1) - 1);
    EXPECT_EQ(refusal_of(completion, with(text)).substr(0, name.size() + 2), name + ": ") << text;
  }
  EXPECT_EQ(refusal_of(completion, with(R"("echo": true, "logprobs": 1)")).substr(0, 5), "echo:");
  EXPECT_EQ(refusal_of(completion, R"({"prompt": ["a", "b", "c"], "n": 43})").substr(0, 2), "n:");
}

TEST(OpenaiRequest, WhatChangesNothingIsReadOver) {
  const ApiRequest request = completion(with(
      R"("user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto", "suffix": null,
      "response_format": {"type": "text"}, "logprobs": null, "stop": null, "unheard_of": null)"));
  EXPECT_EQ(request.sampling.top_logprobs, -1);
  EXPECT_TRUE(request.stops.empty());
  chat(chat_with(R"("tools": [], "tool_choice": "auto", "parallel_tool_calls": true,
      "modalities": ["text"], "logprobs": false)"));
}

TEST(OpenaiRequest, ConversationsAreRead) {
  const ApiRequest request = chat(
      R"({"messages": [{"role": "system", "content": "s"},
      {"role": "user", "content": [{"type": "text", "text": "t"}]}],
      "max_tokens": 3, "max_completion_tokens": 4, "logprobs": true, "top_logprobs": 2,
      "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low"})");
  EXPECT_EQ(request.conversation.messages.size(), 2U);
  EXPECT_TRUE(request.conversation.add_generation_prompt);
  EXPECT_EQ(request.conversation.variables["enable_thinking"], false);
  EXPECT_EQ(request.conversation.variables["reasoning_effort"], "low");
  EXPECT_EQ(request.max_tokens, 4);
  EXPECT_EQ(request.sampling.top_logprobs, 2);
  EXPECT_EQ(chat(chat_with(R"("logprobs": true)")).sampling.top_logprobs, 0);

  const auto refused = [](const std::string& body) { return refusal_of(chat, body); };
  EXPECT_EQ(refused("{}"), "messages: 'messages' is missing");
  EXPECT_EQ(refused(R"({"messages": []})").substr(0, 9), "messages:");
  EXPECT_EQ(refused(R"({"messages": [5]})").substr(0, 12), "messages[0]:");
  EXPECT_EQ(refused(R"({"messages": [{"content": "x"}]})").substr(0, 17), "messages[0].role:");
  EXPECT_EQ(refused(R"({"messages": [{"role": "user"}]})").substr(0, 20), "messages[0].content:");
  EXPECT_NE(refused(R"({"messages": [{"role": "user", "content":
      [{"type": "image_url", "image_url": {"url": "u"}}]}]})")
                .find("images"),
            std::string::npos);
  EXPECT_EQ(refused(chat_with(R"("tools": [{"type": "function"}])")).substr(0, 6), "tools:");
  EXPECT_EQ(refused(chat_with(R"("tool_choice": "required")")).substr(0, 12), "tool_choice:");
  EXPECT_EQ(refused(chat_with(R"("top_logprobs": 2)")).substr(0, 13), "top_logprobs:");
  EXPECT_EQ(refused(chat_with(R"("response_format": {"type": "json_schema", "json_schema": {}})"))
                .substr(0, 16),
            "response_format:");
  EXPECT_EQ(refused(chat_with(R"("prompt": "x")")).substr(0, 7), "prompt:");
}

TEST(OpenaiRequest, BodiesThatAreNoObjectsAreRefused) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("5"),
        std::string("{\"a\": 01}"), std::string("{\"a\": \"\xff\"}"),
        std::string("{\"prompt\": NaN}"), std::string("{} {}"),
        "{\"a\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}"}) {
    EXPECT_EQ(refusal_of([](const std::string& text) { parse_body(text); }, body).substr(0, 2),
              ": ")
        << body.substr(0, 40);
  }
  // Brackets in texts are no nesting.
  EXPECT_EQ(parse_body("{\"a\": \"" + std::string(1000, '[') + "\\\"[\"}").size(), 1U);
}

// Whatever is damaged, the outcome is a request or a refusal.
TEST(OpenaiRequest, DamagedBodiesAreRefused) {
  const std::string good = chat_with(
      R"("n": 2, "stop": ["a"], "logit_bias": {"5": 1.5}, "logprobs": true, "top_logprobs": 2,
      "stream": true, "stream_options": {"include_usage": true}, "seed": 5, "user": "\u00e9")");
  chat(good);
  const uint64_t key = stream_key(3, "body");
  uint64_t index = 0;
  const auto below = [&](size_t bound) { return random_u64(key, index++) % bound; };
  int refusals = 0;
  for (int round = 0; round < 800; ++round) {
    std::string text = good;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0: text[at] = static_cast<char>(below(256)); break;
        case 1: text.erase(at, 1 + below(8)); break;
        case 2: text.insert(at, good.substr(below(good.size()), below(30))); break;
        default: text.resize(at + 1);
      }
    }
    try {
      chat(text);
    } catch (const ApiError&) {
      ++refusals;
    }
  }
  EXPECT_GT(refusals, 400);
}

TEST(OpenaiRequest, VllmsTokenRoutes) {
  const TokenizeRequest text = parse_tokenize(parse_body(R"({"prompt": "x"})"));
  EXPECT_EQ(text.prompt, "x");
  EXPECT_TRUE(text.add_special_tokens);
  EXPECT_FALSE(parse_tokenize(parse_body(R"({"messages": [{"role": "user", "content": "x"}]})"))
                   .prompt.has_value());
  EXPECT_EQ(parse_detokenize(parse_body(R"({"tokens": [1, 2]})")).tokens.size(), 2U);
  EXPECT_THROW(parse_tokenize(parse_body("{}")), ApiError);
  EXPECT_THROW(parse_detokenize(parse_body(R"({"tokens": "x"})")), ApiError);
}

}  // namespace
}  // namespace tutti::endpoint
