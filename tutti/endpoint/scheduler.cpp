#include "tutti/endpoint/scheduler.h"

#include <algorithm>
#include <utility>

#include "tutti/base/check.h"

namespace tutti::endpoint {

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options), pool_(options.pages, options.page_tokens, options.roots) {}

int64_t Scheduler::pages_for(int64_t tokens) const {
  return (tokens + options_.page_tokens - 1) / options_.page_tokens;
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) {
  TUTTI_CHECK(pages_for(sequence->size()) <= pool_.pages(), "a text of {} tokens for {} pages",
              sequence->size(), pool_.pages());
  sequence->link = sequence->root;
  waiting_.push_back(std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::remove(uint64_t id) {
  const auto take = [&](auto& list) -> std::unique_ptr<Sequence> {
    const auto at =
        std::find_if(list.begin(), list.end(), [&](const auto& one) { return one->id == id; });
    if (at == list.end()) return nullptr;
    std::unique_ptr<Sequence> out = std::move(*at);
    list.erase(at);
    return out;
  };
  std::unique_ptr<Sequence> out = take(running_);
  if (out == nullptr) out = take(waiting_);
  if (out != nullptr) give_up_pages(*out);
  return out;
}

void Scheduler::give_up_pages(Sequence& sequence) {
  pool_.release_all(sequence.pages);
  sequence.computed = 0;
  sequence.published_pages = 0;
  sequence.link = sequence.root;
}

void Scheduler::preempt_youngest() {
  std::unique_ptr<Sequence> youngest = std::move(running_.back());
  running_.pop_back();
  give_up_pages(*youngest);
  waiting_.push_front(std::move(youngest));
  ++preemptions_;
}

bool Scheduler::grow(Sequence& sequence, int64_t tokens) {
  while (static_cast<int64_t>(sequence.pages.size()) < pages_for(tokens)) {
    const int32_t page = pool_.allocate();
    if (page < 0) return false;
    sequence.pages.push_back(page);
  }
  return true;
}

bool Scheduler::grow_or_preempt(Sequence& sequence, int64_t tokens) {
  while (!grow(sequence, tokens)) {
    TUTTI_CHECK(running_.size() > 1, "one text of {} tokens for {} pages", tokens, pool_.pages());
    const bool itself = running_.back().get() == &sequence;
    preempt_youngest();
    if (itself) return false;
  }
  return true;
}

bool Scheduler::admit() {
  if (waiting_.empty() || static_cast<int64_t>(running_.size()) >= options_.max_sequences) {
    return false;
  }
  Sequence& sequence = *waiting_.front();
  // At least the last token is computed, as its logits are needed.
  PagePool::Match match{{}, sequence.root};
  if (options_.prefix_caching) {
    match =
        pool_.match(sequence.tokens, (sequence.size() - 1) / options_.page_tokens, sequence.root);
  }
  // With the next token, but no more than there are pages at all.
  const int64_t needed = std::min(pages_for(sequence.size() + 1), pool_.pages()) -
                         static_cast<int64_t>(match.pages.size());
  if (needed > pool_.available()) {
    pool_.release_all(match.pages);
    TUTTI_CHECK(!running_.empty(), "{} pages and none that is free", pool_.pages());
    return false;
  }
  const auto found = static_cast<int64_t>(match.pages.size());
  sequence.pages = std::move(match.pages);
  sequence.link = match.link;
  sequence.published_pages = found;
  sequence.computed = found * options_.page_tokens;
  if (!sequence.admitted) {
    sequence.admitted = true;
    sequence.cached_prompt_tokens = sequence.computed;
    if (options_.prefix_caching) prefix_query_tokens_ += sequence.size();
    prefix_hit_tokens_ += sequence.computed;
  }
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  return true;
}

ScheduledStep Scheduler::plan() {
  ScheduledStep step;
  // Preemption shortens the list from its end, so what is before stays as it is.
  size_t next = 0;
  while (next < running_.size()) {
    Sequence& sequence = *running_[next++];
    if (sequence.computed + 1 != sequence.size()) continue;
    if (!grow_or_preempt(sequence, sequence.size())) break;
    step.decode.push_back({&sequence, 1, true});
  }
  int64_t budget = options_.prefill_tokens;
  const auto prefill = [&](Sequence& sequence) {
    const int64_t grid = options_.prefill_tokens;
    const int64_t end = std::min(sequence.size(), (sequence.computed / grid + 1) * grid);
    if (!grow(sequence, end)) {
      if (running_.front().get() != &sequence) return;  // the older ones end first
      while (!grow(sequence, end)) preempt_youngest();
      // Those that gave up pages compute nothing in this step.
      std::erase_if(step.decode,
                    [](const ScheduledTokens& one) { return one.sequence->pages.empty(); });
    }
    const int64_t count = end - sequence.computed;
    budget -= count;
    step.prefill.push_back({&sequence, count, end == sequence.size()});
  };
  for (size_t i = 0; i < running_.size() && budget > 0; ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.computed + 1 < sequence.size()) prefill(sequence);
  }
  while (budget > 0 && admit()) prefill(*running_.back());
  return step;
}

void Scheduler::computed(const ScheduledTokens& done) {
  Sequence& sequence = *done.sequence;
  sequence.computed += done.count;
  if (!options_.prefix_caching) return;
  const int64_t full = sequence.computed / options_.page_tokens;
  for (int64_t& page = sequence.published_pages; page < full; ++page) {
    const std::span<const int32_t> tokens =
        std::span<const int32_t>(sequence.tokens)
            .subspan(static_cast<size_t>(page * options_.page_tokens),
                     static_cast<size_t>(options_.page_tokens));
    sequence.link = pool_.publish(sequence.pages[static_cast<size_t>(page)], sequence.link, tokens);
  }
}

}  // namespace tutti::endpoint
