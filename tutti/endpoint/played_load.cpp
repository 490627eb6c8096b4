#include "tutti/endpoint/played_load.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/engine/decode_ops.h"

namespace tutti::endpoint {
namespace {

// As PagedDecoder is made by the engine: longer pieces of prompts are computed in parts.
class Player {
 public:
  Player(std::vector<PlayedRequest>& requests, const SchedulerOptions& options, int64_t max_waiting,
         const PassPrice& price)
      : requests_(requests), scheduler_(options), max_waiting_(max_waiting), price_(price) {}

  PlayedLoad run() {
    size_t next = 0;
    while (next < requests_.size() || !scheduler_.idle()) {
      if (scheduler_.idle()) now_ = std::max(now_, requests_[next].at_seconds);
      while (next < requests_.size() && requests_[next].at_seconds <= now_) admit(next++);
      if (!scheduler_.idle()) step();
    }
    out_.seconds = now_;
    out_.preemptions = scheduler_.preemptions();
    return out_;
  }

 private:
  void admit(size_t index) {
    PlayedRequest& request = requests_[index];
    if (static_cast<int64_t>(scheduler_.waiting().size()) >= max_waiting_) {
      request.refused = true;
      return;
    }
    auto sequence = std::make_unique<Sequence>();
    sequence->id = index;
    sequence->tokens.assign(static_cast<size_t>(request.prompt_tokens), 0);
    sequence->prompt_tokens = request.prompt_tokens;
    scheduler_.add(std::move(sequence));
  }

  void step() {
    const ScheduledStep step = scheduler_.plan();
    out_.most_running =
        std::max(out_.most_running, static_cast<int64_t>(scheduler_.running().size()));
    std::vector<ScheduledTokens> few = step.decode;
    for (const ScheduledTokens& tokens : step.prefill) {
      if (tokens.count <= engine::kFewRows) {
        few.push_back(tokens);
      } else {
        pass({tokens});
      }
    }
    std::vector<ScheduledTokens> together;
    int64_t rows = 0;
    for (const ScheduledTokens& tokens : few) {
      if (rows + tokens.count > engine::kFewRows) {
        pass(together);
        together.clear();
        rows = 0;
      }
      together.push_back(tokens);
      rows += tokens.count;
    }
    if (!together.empty()) pass(together);
  }

  void pass(const std::vector<ScheduledTokens>& parts) {
    std::vector<spec::TextRows> texts;
    texts.reserve(parts.size());
    for (const ScheduledTokens& part : parts) {
      texts.push_back({part.count, part.sequence->computed, part.to_end});
    }
    const double seconds = price_(texts);
    now_ += seconds;
    out_.busy_seconds += seconds;
    ++out_.passes;
    for (const ScheduledTokens& part : parts) {
      scheduler_.computed(part);
      if (part.to_end) deliver(*part.sequence);
    }
  }

  void deliver(Sequence& sequence) {
    PlayedRequest& request = requests_[sequence.id];
    sequence.tokens.push_back(0);
    const int64_t answered = sequence.size() - sequence.prompt_tokens;
    if (answered == 1) request.first_token_seconds = now_;
    request.last_token_seconds = now_;
    if (answered >= request.answer_tokens) scheduler_.remove(sequence.id);
  }

  std::vector<PlayedRequest>& requests_;
  Scheduler scheduler_;
  int64_t max_waiting_;
  const PassPrice& price_;
  double now_ = 0;
  PlayedLoad out_;
};

}  // namespace

PlayedLoad play_load(std::vector<PlayedRequest>& requests, const SchedulerOptions& options,
                     int64_t max_waiting, const PassPrice& pass_seconds) {
  const int64_t most = options.pages * options.page_tokens;
  for (const PlayedRequest& request : requests) {
    const int64_t tokens = request.prompt_tokens + request.answer_tokens;
    if (tokens > most) {
      fail(ErrorKind::usage, "a request of {} tokens exceeds the whole cache of {}", tokens, most);
    }
  }
  SchedulerOptions alone = options;
  alone.prefix_caching = false;
  return Player(requests, alone, max_waiting, pass_seconds).run();
}

}  // namespace tutti::endpoint
