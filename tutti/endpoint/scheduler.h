// Which requests a step of the engine computes, and whose the pages of the cache are. It knows
// neither the model nor threads.
//
// Requests run in the order in which they came, up to max_sequences of them. One is admitted when
// there are pages for all that it has, so that it seldom loses them again. In a step every running
// request whose text is computed but for the last token decodes; the others, the oldest first,
// compute their text up to its next multiple of prefill_tokens, until so many tokens are computed.
// So how a text is cut depends on the text alone. Where a request needs a page and there is none,
// the youngest gives up all of its own and waits, before those that have never run.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/page_pool.h"
#include "tutti/endpoint/sampling.h"
#include "tutti/model/served_adapter.h"

namespace tutti::endpoint {

// A request that is served.
struct Sequence {
  uint64_t id = 0;
  std::vector<int32_t> tokens;  // of the prompt, then those generated
  int64_t prompt_tokens = 0;
  std::unique_ptr<Sampler> sampler;
  Engine::Sink sink;
  const model::ServedAdapter* adapter = nullptr;
  PagePool::Link root = 0;  // of its pages: texts of different adapters share none

  int64_t computed = 0;              // tokens whose keys and values are in the cache
  std::vector<int32_t> pages;        // that hold them
  int64_t published_pages = 0;       // of these, from the first on
  PagePool::Link link = 0;           // behind the last published one, at first its root
  int64_t cached_prompt_tokens = 0;  // found when it was first admitted
  bool admitted = false;             // ever
  bool first_scheduled = false;      // its first step has begun

  double submitted_seconds = 0;   // on the monotonic clock, as all times here
  double last_token_seconds = 0;  // 0: none yet

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
};

struct SchedulerOptions {
  int64_t pages = 0;
  int64_t page_tokens = 16;
  int64_t max_sequences = 16;
  int64_t prefill_tokens = 256;
  bool prefix_caching = true;
  int64_t roots = 1;  // of texts
};

// Tokens of a sequence to be computed next, from `computed` on. The pages for them are there.
struct ScheduledTokens {
  Sequence* sequence = nullptr;
  int64_t count = 0;
  bool to_end = false;  // its logits decide the next token
};

struct ScheduledStep {
  std::vector<ScheduledTokens> decode;   // one token each
  std::vector<ScheduledTokens> prefill;  // the oldest first
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // The sequence is shorter than all pages together.
  void add(std::unique_ptr<Sequence> sequence);
  // Takes one out, running or waiting; null where it is neither.
  std::unique_ptr<Sequence> remove(uint64_t id);

  // What to compute now. A sequence in it stays where it is until computed() or remove().
  ScheduledStep plan();
  // What plan() asked for has been computed.
  void computed(const ScheduledTokens& done);

  bool idle() const { return running_.empty() && waiting_.empty(); }
  const std::vector<std::unique_ptr<Sequence>>& running() const { return running_; }
  const std::deque<std::unique_ptr<Sequence>>& waiting() const { return waiting_; }
  const PagePool& pool() const { return pool_; }
  int64_t preemptions() const { return preemptions_; }
  int64_t prefix_query_tokens() const { return prefix_query_tokens_; }
  int64_t prefix_hit_tokens() const { return prefix_hit_tokens_; }

 private:
  int64_t pages_for(int64_t tokens) const;
  // Pages for the first `tokens` of a sequence, taken from the free ones only; false: not enough.
  bool grow(Sequence& sequence, int64_t tokens);
  // The same, at the cost of younger sequences. False: the sequence itself lost its pages.
  bool grow_or_preempt(Sequence& sequence, int64_t tokens);
  void preempt_youngest();
  bool admit();
  void give_up_pages(Sequence& sequence);

  SchedulerOptions options_;
  PagePool pool_;
  std::vector<std::unique_ptr<Sequence>> running_;  // the oldest first
  std::deque<std::unique_ptr<Sequence>> waiting_;
  int64_t preemptions_ = 0, prefix_query_tokens_ = 0, prefix_hit_tokens_ = 0;
};

}  // namespace tutti::endpoint
