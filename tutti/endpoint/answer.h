// One request to an engine, from its prompts to the answer that its client gets: n choices for each
// prompt, as a whole or as a stream.
//
// start() hands everything to the engine and returns at once; tokens then arrive on the engine's
// thread and become text, events and at last the end of the answer. A client that leaves, or a text
// that the answer stops at, cancels what is not needed any more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/http_reply.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/endpoint/answer_text.h"
#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/key_meter.h"
#include "tutti/endpoint/openai_error.h"
#include "tutti/endpoint/openai_response.h"

namespace tutti::endpoint {

// What of an engine an answer needs.
struct Generator {
  std::function<std::optional<uint64_t>(GenerationRequest, Engine::Sink)> submit;
  std::function<void(uint64_t)> cancel;
};
Generator generator_of(Engine& engine);

struct AnswerPlan {
  AnswerHead head;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::string> echoes;  // what choices of a prompt begin with; empty: nothing
  SamplingParams sampling;          // choice i has seed + i
  std::string adapter;              // GenerationRequest::adapter
  int64_t n = 1;                    // choices of each prompt
  std::vector<std::string> stops;
  bool stream = false;
  // Called once, when nothing more of it will be computed and before its client sees the end, with
  // what it has used: of prompts those that have got a token.
  std::function<void(const Usage&)> on_end;
  const data::Tokenizer* tokenizer = nullptr;  // outlives the answer
};

// Holds what the answer may use of its key's budget until it ends. Throws as KeyMeter::admit.
void meter_answer(KeyMeter& meter, const std::string& key, AnswerPlan& plan);

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  // Throws ApiError: 429 where the engine's queue is full, 400 for what it does not accept.
  static std::shared_ptr<HttpReply> start(Generator generator, AnswerPlan plan);

  Answer(Generator generator, AnswerPlan plan);
  ~Answer();
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

 private:
  struct Choice {
    int64_t index = 0;
    std::optional<uint64_t> id;  // of the engine, once it has said so
    bool is_cancelled = false;
    AnswerText text;
    std::string echo;                 // not sent yet
    size_t sent = 0;                  // bytes of text
    std::vector<AnswerToken> tokens;  // not sent yet, for log probabilities
    std::string finish_reason;
    int64_t generated = 0;
    int64_t cached = 0;
  };

  void submit_all();
  void open();
  void leave();
  void cancel_all();
  void take(size_t index, const GenerationOutput& output);
  void add_token(Choice& choice, const GenerationOutput& output);
  void send_new(Choice& choice);
  void end_if_done();
  void fail_with(int status, const std::string& message);
  void emit(const std::string& event);
  std::string bytes_of(int32_t token) const;
  AnswerPiece new_piece(Choice& choice) const;
  Usage usage() const;
  void settle();

  const Generator generator_;
  const AnswerPlan plan_;
  const std::shared_ptr<HttpReply> reply_;
  std::mutex mutex_;  // of all below
  std::vector<Choice> choices_;
  std::string backlog_;   // events before the answer is open
  bool is_open_ = false;  // the engine has accepted all choices
  bool is_done_ = false;
  bool is_settled_ = false;
  bool is_left_ = false;             // by its client
  std::optional<ApiError> failure_;  // before it was open
};

}  // namespace tutti::endpoint
