#include "tutti/endpoint/answer.h"

#include <algorithm>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/http_server.h"

namespace tutti::endpoint {
namespace {

bool contains_token(const std::vector<int32_t>& list, int32_t token) {
  return std::find(list.begin(), list.end(), token) != list.end();
}

}  // namespace

Generator generator_of(Engine& engine) {
  return {[&engine](GenerationRequest request, Engine::Sink sink) {
            return engine.submit(std::move(request), std::move(sink));
          },
          [&engine](uint64_t id) { engine.cancel(id); }};
}

void meter_answer(KeyMeter& meter, const std::string& key, AnswerPlan& plan) {
  KeyMeter::Demand demand{plan.head.id, plan.head.model, 0, 0};
  for (const auto& prompt : plan.prompts) {
    demand.prompt_tokens += static_cast<int64_t>(prompt.size());
  }
  demand.most_answer_tokens =
      static_cast<int64_t>(plan.prompts.size()) * plan.n * plan.sampling.max_tokens;
  plan.on_end = [hold = meter.admit(key, demand)](const Usage& usage) { hold->settle(usage); };
}

Answer::Answer(Generator generator, AnswerPlan plan)
    : generator_(std::move(generator)),
      plan_(std::move(plan)),
      reply_(std::make_shared<HttpReply>()) {
  const size_t count = plan_.prompts.size() * static_cast<size_t>(plan_.n);
  choices_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Choice choice;
    choice.index = static_cast<int64_t>(i);
    choice.text = AnswerText(plan_.stops);
    if (!plan_.echoes.empty()) choice.echo = plan_.echoes[i / static_cast<size_t>(plan_.n)];
    choices_.push_back(std::move(choice));
  }
}

Answer::~Answer() { settle(); }

// Within the lock, or where no other thread has it.
void Answer::settle() {
  if (std::exchange(is_settled_, true) || !plan_.on_end) return;
  Usage used;
  for (size_t i = 0; i < choices_.size(); i += static_cast<size_t>(plan_.n)) {
    int64_t generated = 0;
    int64_t cached = 0;
    for (size_t j = i; j < i + static_cast<size_t>(plan_.n); ++j) {
      generated += choices_[j].generated;
      cached = std::max(cached, choices_[j].cached);
    }
    // Of what a client leaves before its first token, the prompt has cost the same.
    const bool is_begun = generated > 0 || (is_left_ && choices_[i].id);
    if (!is_begun) continue;
    used.completion_tokens += generated;
    used.cached_tokens += cached;
    used.prompt_tokens +=
        static_cast<int64_t>(plan_.prompts[i / static_cast<size_t>(plan_.n)].size());
  }
  plan_.on_end(used);
}

std::shared_ptr<HttpReply> Answer::start(Generator generator, AnswerPlan plan) {
  const auto answer = std::make_shared<Answer>(std::move(generator), std::move(plan));
  try {
    answer->submit_all();
    answer->open();
  } catch (const Error& error) {
    answer->cancel_all();
    throw ApiError(error.kind() == ErrorKind::usage ? 400 : 500, error.what());
  } catch (...) {
    answer->cancel_all();
    throw;
  }
  // The reply knows the answer weakly: the engine keeps it for as long as it generates.
  answer->reply_->on_disconnect([weak = std::weak_ptr<Answer>(answer)] {
    if (const auto self = weak.lock()) self->leave();
  });
  return answer->reply_;
}

void Answer::submit_all() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    GenerationRequest request;
    request.prompt = plan_.prompts[i / static_cast<size_t>(plan_.n)];
    request.adapter = plan_.adapter;
    request.sampling = plan_.sampling;
    request.sampling.seed += i % static_cast<size_t>(plan_.n);
    const auto id = generator_.submit(
        std::move(request),
        [self = shared_from_this(), i](const GenerationOutput& output) { self->take(i, output); });
    if (!id) {
      throw ApiError(429, "too many requests wait for this model; try again in a moment", "",
                     "queue_full");
    }
    bool is_cancelled = false;
    {
      const std::scoped_lock lock(mutex_);
      choices_[i].id = id;
      is_cancelled = choices_[i].is_cancelled;
    }
    if (is_cancelled) generator_.cancel(*id);
  }
}

void Answer::open() {
  const std::scoped_lock lock(mutex_);
  if (failure_) throw ApiError(*failure_);
  is_open_ = true;
  if (plan_.stream) {
    HttpResponse head;
    head.content_type = "text/event-stream";
    // Proxies (nginx) would collect events otherwise.
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    reply_->begin(head);
    std::string first;
    if (plan_.head.route == Route::chat) {
      for (const Choice& choice : choices_) {
        first += sse_event(dump_json(role_event(plan_.head, choice.index)));
      }
    }
    reply_->write(first + std::exchange(backlog_, {}));
  }
  end_if_done();
}

// The client has gone.
void Answer::leave() {
  {
    const std::scoped_lock lock(mutex_);
    is_left_ = true;
  }
  cancel_all();
}

void Answer::cancel_all() {
  std::vector<uint64_t> ids;
  {
    const std::scoped_lock lock(mutex_);
    is_done_ = true;
    settle();
    for (Choice& choice : choices_) {
      choice.is_cancelled = true;
      if (choice.id) ids.push_back(*choice.id);
    }
  }
  for (const uint64_t id : ids) generator_.cancel(id);
}

void Answer::take(size_t index, const GenerationOutput& output) {
  std::optional<uint64_t> stopped;
  bool failed = false;
  {
    const std::scoped_lock lock(mutex_);
    Choice& choice = choices_[index];
    if (is_done_ || !choice.finish_reason.empty()) return;
    choice.cached = std::max(choice.cached, output.cached_prompt_tokens);
    if (output.token >= 0) add_token(choice, output);
    switch (output.finish) {
      case FinishReason::none: break;
      case FinishReason::stop: choice.finish_reason = "stop"; break;
      case FinishReason::length: choice.finish_reason = "length"; break;
      case FinishReason::cancelled:
        fail_with(503, "the endpoint shuts down; try again in a moment");
        failed = true;
        break;
      case FinishReason::error:
        fail_with(500, "the model could not do it: " + output.error);
        failed = true;
        break;
    }
    if (!failed) {
      if (!choice.finish_reason.empty()) choice.text.finish();
      if (choice.text.is_stopped()) {
        if (output.finish == FinishReason::none) {
          choice.is_cancelled = true;
          stopped = choice.id;
        }
        choice.finish_reason = "stop";
      }
      send_new(choice);
      end_if_done();
    }
  }
  if (stopped) generator_.cancel(*stopped);
  if (failed) cancel_all();
}

void Answer::add_token(Choice& choice, const GenerationOutput& output) {
  ++choice.generated;
  if (contains_token(plan_.sampling.stop_tokens, output.token)) return;
  AnswerToken token;
  token.bytes = bytes_of(output.token);
  token.begin = choice.text.text().size();
  choice.text.add(token.bytes);
  if (!plan_.head.logprobs) return;
  token.logprob = output.logprob;
  for (const TokenLogprob& one : output.top) {
    token.top.push_back({bytes_of(one.token), one.logprob});
  }
  choice.tokens.push_back(std::move(token));
}

// A model may have more rows than its tokenizer has tokens; those say nothing.
std::string Answer::bytes_of(int32_t token) const {
  const data::Tokenizer* tokenizer = plan_.tokenizer;
  if (tokenizer == nullptr || token >= tokenizer->vocabulary_size()) return "";
  return tokenizer->decode_rest(std::span<const int32_t>(&token, 1));
}

// What may be sent of the choice and has not been. Tokens go with the text that they end in.
AnswerPiece Answer::new_piece(Choice& choice) const {
  AnswerPiece piece;
  piece.index = choice.index;
  piece.finish_reason = choice.finish_reason;
  const size_t ready = choice.text.ready();
  piece.text =
      std::exchange(choice.echo, {}) + choice.text.text().substr(choice.sent, ready - choice.sent);
  choice.sent = ready;
  const bool ends = !piece.finish_reason.empty();
  size_t count = 0;
  while (count < choice.tokens.size()) {
    const bool is_last = count + 1 == choice.tokens.size();
    const size_t end = is_last ? choice.text.text().size() : choice.tokens[count + 1].begin;
    const size_t begin = choice.tokens[count].begin;
    if (ends ? choice.text.is_stopped() && begin >= ready : end > ready) break;
    ++count;
  }
  const auto end = choice.tokens.begin() + static_cast<std::ptrdiff_t>(count);
  piece.tokens.assign(std::make_move_iterator(choice.tokens.begin()), std::make_move_iterator(end));
  choice.tokens.erase(choice.tokens.begin(), end);
  return piece;
}

void Answer::send_new(Choice& choice) {
  if (!plan_.stream) return;
  const AnswerPiece piece = new_piece(choice);
  if (piece.text.empty() && piece.tokens.empty() && piece.finish_reason.empty()) return;
  emit(sse_event(dump_json(piece_event(plan_.head, piece))));
}

void Answer::emit(const std::string& event) {
  if (is_open_) {
    reply_->write(event);
  } else {
    backlog_ += event;
  }
}

Usage Answer::usage() const {
  Usage usage;
  for (size_t i = 0; i < choices_.size(); ++i) {
    usage.completion_tokens += choices_[i].generated;
    if (i % static_cast<size_t>(plan_.n) != 0) continue;
    usage.prompt_tokens +=
        static_cast<int64_t>(plan_.prompts[i / static_cast<size_t>(plan_.n)].size());
    usage.cached_tokens += choices_[i].cached;
  }
  return usage;
}

void Answer::end_if_done() {
  if (!is_open_ || is_done_) return;
  for (const Choice& choice : choices_) {
    if (choice.finish_reason.empty()) return;
  }
  is_done_ = true;
  settle();
  if (plan_.stream) {
    if (plan_.head.include_usage) {
      reply_->write(sse_event(dump_json(usage_event(plan_.head, usage()))));
    }
    reply_->write(kDoneEvent);
    reply_->finish();
    return;
  }
  std::vector<AnswerPiece> pieces;
  pieces.reserve(choices_.size());
  for (Choice& choice : choices_) pieces.push_back(new_piece(choice));
  HttpResponse response;
  response.content_type = "application/json";
  response.body = dump_json(answer_json(plan_.head, pieces, usage())) + "\n";
  reply_->answer(response);
}

void Answer::fail_with(int status, const std::string& message) {
  const ApiError error(status, message);
  is_done_ = true;
  settle();
  if (!is_open_) {
    failure_ = error;
  } else if (plan_.stream) {
    reply_->write(sse_event(error_json(error)));
    reply_->finish();
  } else {
    reply_->answer(error_response(error));
  }
}

}  // namespace tutti::endpoint
