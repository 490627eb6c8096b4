#include "tutti/endpoint/answer.h"

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <set>

#include "tutti/base/error.h"
#include "tutti/base/testing/http_exchange.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/endpoint/openai_error.h"

namespace tutti::endpoint {
namespace {

// Instead of an engine: the test says which tokens come when.
struct FakeEngine {
  std::map<uint64_t, Engine::Sink> sinks;
  std::map<uint64_t, GenerationRequest> requests;
  std::set<uint64_t> cancelled;
  uint64_t last = 0;
  uint64_t most = 100;

  Generator generator() {
    return {[this](GenerationRequest request, Engine::Sink sink) -> std::optional<uint64_t> {
              if (last >= most) return std::nullopt;
              requests[++last] = std::move(request);
              sinks[last] = std::move(sink);
              return last;
            },
            [this](uint64_t id) { cancelled.insert(id); }};
  }
  void say(uint64_t id, const std::string& bytes, FinishReason finish = FinishReason::none) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      GenerationOutput output;
      output.token = static_cast<unsigned char>(bytes[i]);
      output.logprob = -1;
      output.top = {{output.token, -1}};
      output.cached_prompt_tokens = 2;
      if (i + 1 == bytes.size()) output.finish = finish;
      sinks.at(id)(output);
    }
  }
  void end(uint64_t id, FinishReason finish, int32_t token = -1) {
    GenerationOutput output;
    output.finish = finish;
    output.token = token;
    output.error = "out of luck";
    sinks.at(id)(output);
  }
};

class AnswerTest : public ::testing::Test {
 protected:
  AnswerPlan plan(Route route, bool stream) const {
    AnswerPlan plan;
    plan.head.route = route;
    plan.head.id = "id";
    plan.head.model = "m";
    plan.prompts = {{1, 2, 3}};
    plan.sampling.stop_tokens = {256};
    plan.sampling.seed = 40;
    plan.stream = stream;
    plan.tokenizer = &tokenizer_;
    return plan;
  }
  // What the client gets, once the script has been played behind its request.
  std::string exchange(const AnswerPlan& plan, const std::function<void()>& script) {
    std::promise<void> asked;
    HttpOptions options;
    options.limits.workers = 1;
    options.handler = [&](const HttpRequest&) {
      HttpResponse response;
      try {
        response.later = Answer::start(engine_.generator(), plan);
      } catch (const ApiError& error) {
        response = error_response(error);
      }
      asked.set_value();
      return response;
    };
    const http_testing::RunningServer server(std::move(options));
    const http_testing::HttpClient client(server.port());
    client.send("GET / HTTP/1.0\r\n\r\n");  // no chunks: the events as they are
    asked.get_future().wait();
    script();
    const std::string all = client.read();
    return all.substr(std::min(all.find("\r\n\r\n"), all.size() - 4) + 4);
  }

  data::ByteTokenizer tokenizer_;
  FakeEngine engine_;
};

// The data of the events.
std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_EQ(body.substr(at, 6), "data: ");
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return events;
}

TEST_F(AnswerTest, WholeAnswersOfSeveralChoices) {
  AnswerPlan two = plan(Route::completions, false);
  two.n = 2;
  two.echoes = {"echo "};
  const std::string body = exchange(two, [&] {
    engine_.say(2, "second", FinishReason::length);
    engine_.say(1, "fi\xc3");
    engine_.say(1, "\xa9");
    engine_.end(1, FinishReason::stop, 256);
  });
  const Json json = Json::parse(body);
  EXPECT_EQ(json["choices"][0]["text"], "echo fi\u00e9");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][1]["text"], "echo second");
  EXPECT_EQ(json["choices"][1]["finish_reason"], "length");
  // The token that ends a text counts, and is no text; the prompt counts once.
  EXPECT_EQ(json["usage"]["completion_tokens"], 5 + 6);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(engine_.requests[1].sampling.seed, 40U);
  EXPECT_EQ(engine_.requests[2].sampling.seed, 41U);
}

TEST_F(AnswerTest, StreamsHoldBackWhatIsNotCertain) {
  AnswerPlan chat = plan(Route::chat, true);
  chat.stops = {"STOP"};
  chat.head.include_usage = true;
  const std::string body = exchange(chat, [&] {
    engine_.say(1, "a\xc3");
    engine_.say(1, "\xa9 ST");
    engine_.say(1, "OP and more");
  });
  const auto events = events_of(body);
  std::string text;
  std::string reason;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json event = Json::parse(events[i]);
    if (event["choices"].empty()) {
      // Until the stop: a, two bytes, a space, four of the stop.
      EXPECT_EQ(event["usage"]["completion_tokens"], 8);
      continue;
    }
    const Json& choice = event["choices"][0];
    if (choice["delta"].contains("content")) text += choice["delta"]["content"].get<std::string>();
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
  }
  EXPECT_EQ(text, "a\u00e9 ");
  EXPECT_EQ(reason, "stop");
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(engine_.cancelled.count(1), 1U) << "the engine need not write what is not read";
}

TEST_F(AnswerTest, TokensComeWithTheirText) {
  for (const bool stream : {false, true}) {
    FakeEngine fresh;
    engine_ = fresh;
    AnswerPlan asked = plan(Route::completions, stream);
    asked.stops = {"cd"};
    asked.head.logprobs = true;
    const std::string body = exchange(asked, [&] { engine_.say(1, "abcd"); });
    std::vector<std::string> tokens;
    const auto take = [&](const Json& json) {
      for (const Json& token : json["choices"][0]["logprobs"]["tokens"]) tokens.push_back(token);
    };
    if (stream) {
      const auto events = events_of(body);
      for (size_t i = 0; i + 1 < events.size(); ++i) take(Json::parse(events[i]));
    } else {
      take(Json::parse(body));
    }
    EXPECT_EQ(tokens, (std::vector<std::string>{"a", "b"})) << stream;
  }
}

TEST_F(AnswerTest, FailuresOfTheEngine) {
  const std::string whole = exchange(plan(Route::chat, false), [&] {
    engine_.say(1, "x");
    engine_.end(1, FinishReason::error);
  });
  EXPECT_NE(Json::parse(whole)["error"]["message"].get<std::string>().find("out of luck"),
            std::string::npos);
  engine_ = {};
  const std::string streamed = exchange(plan(Route::chat, true), [&] {
    engine_.say(1, "x");
    engine_.end(1, FinishReason::cancelled);
  });
  const auto events = events_of(streamed);
  EXPECT_EQ(Json::parse(events.back())["error"]["type"], "service_unavailable_error");
}

TEST_F(AnswerTest, AFullQueueCancelsWhatWasAccepted) {
  engine_.most = 2;
  AnswerPlan three = plan(Route::completions, false);
  three.n = 3;
  const std::string body = exchange(three, [] {});
  EXPECT_EQ(Json::parse(body)["error"]["code"], "queue_full");
  EXPECT_EQ(engine_.cancelled, (std::set<uint64_t>{1, 2}));
}

TEST_F(AnswerTest, AnEngineMayFailAtOnce) {
  const Generator refuses = {[](GenerationRequest, Engine::Sink) -> std::optional<uint64_t> {
                               fail(ErrorKind::usage, "prompt: too long");
                             },
                             [](uint64_t) {}};
  try {
    Answer::start(refuses, plan(Route::chat, true));
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
  }
  const Generator at_once = {
      [](GenerationRequest, const Engine::Sink& sink) -> std::optional<uint64_t> {
        GenerationOutput output;
        output.finish = FinishReason::error;
        sink(output);
        return 1;
      },
      [](uint64_t) {}};
  try {
    Answer::start(at_once, plan(Route::chat, true));
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 500);
  }
}

}  // namespace
}  // namespace tutti::endpoint
