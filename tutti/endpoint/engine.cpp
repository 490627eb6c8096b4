#include "tutti/endpoint/engine.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/endpoint/scheduler.h"
#include "tutti/model/paged_decode.h"

namespace tutti::endpoint {
namespace {

constexpr int64_t kUsualCacheBytes = int64_t{4} << 30;  // as vLLM's on CPUs

int64_t available_memory_bytes() {
  std::ifstream memory("/proc/meminfo");
  for (std::string name; memory >> name;) {
    int64_t kibibytes = 0;
    if (name == "MemAvailable:" && memory >> kibibytes) return kibibytes * 1024;
    memory.ignore(INT32_MAX, '\n');
  }
  return int64_t{1} << 30;
}

void check_options(const EngineOptions& options) {
  const auto at_least = [](const char* name, int64_t value, int64_t least) {
    if (value >= least) return;
    fail(ErrorKind::usage, "{}: {} is not at least {}", name, value, least);
  };
  at_least("cache_bytes", options.cache_bytes, 0);
  at_least("page_tokens", options.page_tokens, 1);
  at_least("max_sequences", options.max_sequences, 1);
  at_least("max_waiting", options.max_waiting, 0);
  at_least("prefill_tokens", options.prefill_tokens, 1);
  at_least("threads", options.threads, 0);
}

int64_t pages_of(const LoadedModel& model, const EngineOptions& options) {
  const DType compute = model.weights->compute();
  const int64_t page_bytes =
      options.page_tokens * model::PagedDecoder::cache_row_bytes(model.config, compute);
  const int64_t of_a_text = (model.context() + options.page_tokens - 1) / options.page_tokens;
  int64_t bytes = options.cache_bytes;
  if (bytes == 0) {
    bytes = std::min({kUsualCacheBytes, available_memory_bytes() / 2,
                      options.max_sequences * of_a_text * page_bytes});
  }
  const int64_t pages = bytes / page_bytes;
  if (pages < 2) {
    fail(ErrorKind::usage,
         "the cache of keys and values: {} bytes hold {} pages of {} tokens, {} bytes each; give "
         "it more memory",
         bytes, pages, options.page_tokens, page_bytes);
  }
  return pages;
}

int64_t largest_rank(const LoadedModel& model) {
  int64_t out = 0;
  for (const LoadedAdapter& adapter : model.adapters) {
    out = std::max(out, adapter.weights->largest_rank());
  }
  return out;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const LoadedModel& model, const EngineOptions& options)
      : model_(model),
        options_((check_options(options), options)),
        pages_(pages_of(model, options)),
        pass_rows_(options.batch_invariant ? engine::kFewRows
                                           : std::max(options.prefill_tokens, engine::kFewRows)),
        decoder_(model.config, model.weights->parameters(), model.weights->compute(),
                 {.pages = pages_,
                  .page_rows = options.page_tokens,
                  .rows = pass_rows_,
                  .logit_rows = engine::kFewRows,
                  .adapter_rank = largest_rank(model)}),
        scheduler_({.pages = pages_,
                    .page_tokens = options.page_tokens,
                    .max_sequences = options.max_sequences,
                    .prefill_tokens = options.prefill_tokens,
                    .prefix_caching = options.prefix_caching,
                    .roots = static_cast<int64_t>(model.adapters.size()) + 1}) {
    live_.cache_pages = pages_;
    live_.cache_bytes =
        pages_ * options.page_tokens *
        model::PagedDecoder::cache_row_bytes(model.config, model.weights->compute());
    live_.time_to_first_token_seconds = first_token_histogram();
    live_.time_per_output_token_seconds = between_tokens_histogram();
    live_.queue_seconds = request_histogram();
    live_.end_to_end_seconds = request_histogram();
    stats_ = live_;
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    thread_.join();
  }

  int64_t longest_text() const { return std::min(model_.context(), pages_ * options_.page_tokens); }

  std::optional<uint64_t> submit(GenerationRequest request, Sink sink) {
    check_request(request);
    auto sequence = std::make_unique<Sequence>();
    sequence->prompt_tokens = static_cast<int64_t>(request.prompt.size());
    sequence->sampler = std::make_unique<Sampler>(std::move(request.sampling), request.prompt);
    sequence->tokens = std::move(request.prompt);
    if (const LoadedAdapter* adapter = find_adapter(request.adapter)) {
      sequence->adapter = adapter->weights.get();
      sequence->root = static_cast<PagePool::Link>(adapter - model_.adapters.data()) + 1;
    }
    sequence->sink = std::move(sink);
    sequence->submitted_seconds = monotonic_seconds();
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_ || active_ >= options_.max_sequences + options_.max_waiting) {
      return std::nullopt;
    }
    sequence->id = ++last_id_;
    ++active_;
    ++accepted_;
    arrivals_.push_back(std::move(sequence));
    work_.notify_all();
    return last_id_;
  }

  void cancel(uint64_t id) {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
    work_.notify_all();
  }

  void drain() {
    std::unique_lock lock(mutex_);
    draining_ = true;
    idle_.wait(lock, [&] { return active_ == 0; });
  }

  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats out = stats_;
    out.waiting += static_cast<int64_t>(arrivals_.size());
    out.requests = accepted_;
    return out;
  }

 private:
  const LoadedAdapter* find_adapter(const std::string& name) const {
    for (const LoadedAdapter& adapter : model_.adapters) {
      if (adapter.name == name) return &adapter;
    }
    return nullptr;
  }

  void check_request(const GenerationRequest& request) const {
    const auto length = static_cast<int64_t>(request.prompt.size());
    if (length == 0) fail(ErrorKind::usage, "prompt: no tokens");
    if (length >= longest_text()) {
      fail(ErrorKind::usage, "prompt: {} tokens leave no room in {} of {}; shorten it", length,
           longest_text() == model_.context() ? "the model's context" : "the cache",
           longest_text());
    }
    for (const int32_t token : request.prompt) {
      if (token >= 0 && token < model_.config.vocabulary) continue;
      fail(ErrorKind::usage, "prompt: {} is not a token of the model, which has {}", token,
           model_.config.vocabulary);
    }
    if (!request.adapter.empty() && find_adapter(request.adapter) == nullptr) {
      fail(ErrorKind::usage, "adapter: '{}' is not loaded", request.adapter);
    }
    check(request.sampling, model_.config.vocabulary);
  }

  void run() {
    stream_ = engine::make_cpu_stream(options_.threads);
    while (true) {
      if (!take_commands()) break;
      try {
        step();
      } catch (const std::exception& error) {
        end_all(FinishReason::error, error.what());
      }
      publish_stats();
    }
    end_all(FinishReason::cancelled, "");
    publish_stats();
  }

  // Waits for work; false: the engine ends.
  bool take_commands() {
    std::vector<std::unique_ptr<Sequence>> arrived;
    std::vector<uint64_t> cancelled;
    bool goes_on = true;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] {
        return stopping_ || !arrivals_.empty() || !cancels_.empty() || !scheduler_.idle();
      });
      arrived.swap(arrivals_);
      cancelled.swap(cancels_);
      goes_on = !stopping_;
    }
    for (auto& sequence : arrived) scheduler_.add(std::move(sequence));
    for (const uint64_t id : cancelled) {
      if (const auto sequence = scheduler_.remove(id)) end(*sequence, FinishReason::cancelled, "");
    }
    return goes_on;
  }

  void step() {
    const double begin = monotonic_seconds();
    const ScheduledStep step = scheduler_.plan();
    for (const ScheduledTokens& tokens : step.prefill) first_scheduled(*tokens.sequence, begin);
    // Pieces of few rows share passes; the others have one each, so that nothing beside them
    // changes their sums.
    std::vector<ScheduledTokens> few = step.decode;
    for (const ScheduledTokens& tokens : step.prefill) {
      if (tokens.count <= engine::kFewRows) {
        few.push_back(tokens);
      } else {
        for (int64_t done = 0; done < tokens.count; done += pass_rows_) {
          const int64_t count = std::min(pass_rows_, tokens.count - done);
          pass({{tokens.sequence, count, tokens.to_end && done + count == tokens.count}});
        }
      }
    }
    // Neighbours of one adapter share its products.
    std::stable_sort(few.begin(), few.end(),
                     [](const ScheduledTokens& a, const ScheduledTokens& b) {
                       return a.sequence->root < b.sequence->root;
                     });
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
    if (step.decode.empty() && step.prefill.empty()) return;
    ++live_.steps;
    live_.step_seconds += monotonic_seconds() - begin;
  }

  void first_scheduled(Sequence& sequence, double now) {
    if (sequence.first_scheduled) return;
    sequence.first_scheduled = true;
    live_.queue_seconds.add(now - sequence.submitted_seconds);
    live_.prompt_tokens += sequence.prompt_tokens;
  }

  void pass(const std::vector<ScheduledTokens>& parts) {
    std::vector<model::PagedDecoder::Piece> pieces;
    std::vector<int64_t> decided;  // rows whose logits decide a token
    int64_t row = 0;
    for (const ScheduledTokens& part : parts) {
      const Sequence& sequence = *part.sequence;
      pieces.push_back(
          {std::span<const int32_t>(sequence.tokens)
               .subspan(static_cast<size_t>(sequence.computed), static_cast<size_t>(part.count)),
           sequence.computed, sequence.pages, sequence.adapter});
      row += part.count;
      if (part.to_end) decided.push_back(row - 1);
    }
    decoder_.forward(*stream_, pieces);
    for (const ScheduledTokens& part : parts) scheduler_.computed(part);
    if (decided.empty()) return;
    const engine::Matrix logits = decoder_.logits(*stream_, decided);
    int64_t next = 0;
    for (const ScheduledTokens& part : parts) {
      if (!part.to_end) continue;
      const float* begin = logits.row<float>(next++);
      deliver(*part.sequence, {begin, static_cast<size_t>(logits.cols)});
    }
  }

  void deliver(Sequence& sequence, std::span<const float> logits) {
    SampledToken sampled = sequence.sampler->next(logits);
    sequence.tokens.push_back(sampled.token);
    const double now = monotonic_seconds();
    const bool first = sequence.last_token_seconds == 0;
    (first ? live_.time_to_first_token_seconds : live_.time_per_output_token_seconds)
        .add(now - (first ? sequence.submitted_seconds : sequence.last_token_seconds));
    sequence.last_token_seconds = now;
    ++live_.generation_tokens;
    GenerationOutput out;
    out.token = sampled.token;
    out.logprob = sampled.logprob;
    out.top = std::move(sampled.top);
    out.cached_prompt_tokens = sequence.cached_prompt_tokens;
    const SamplingParams& params = sequence.sampler->params();
    const auto& stops = params.stop_tokens;
    if (std::find(stops.begin(), stops.end(), sampled.token) != stops.end()) {
      out.finish = FinishReason::stop;
    } else if (sequence.sampler->generated() >= params.max_tokens ||
               sequence.size() >= longest_text()) {
      out.finish = FinishReason::length;
    }
    if (out.finish == FinishReason::none) {
      sequence.sink(out);
      return;
    }
    const std::unique_ptr<Sequence> ended = scheduler_.remove(sequence.id);
    finish(*ended, out);
  }

  void end(Sequence& sequence, FinishReason reason, const std::string& error) {
    GenerationOutput out;
    out.finish = reason;
    out.error = error;
    out.cached_prompt_tokens = sequence.cached_prompt_tokens;
    finish(sequence, out);
  }

  // The last output of a sequence that the scheduler no longer has.
  void finish(Sequence& sequence, const GenerationOutput& out) {
    switch (out.finish) {
      case FinishReason::stop: ++live_.finished_stop; break;
      case FinishReason::length: ++live_.finished_length; break;
      case FinishReason::cancelled: ++live_.finished_cancelled; break;
      default: ++live_.finished_error; break;
    }
    live_.end_to_end_seconds.add(monotonic_seconds() - sequence.submitted_seconds);
    publish_stats();  // what the sink may look at
    sequence.sink(out);
    const std::lock_guard lock(mutex_);
    if (--active_ == 0) idle_.notify_all();
  }

  void end_all(FinishReason reason, const std::string& error) {
    while (!scheduler_.idle()) {
      const uint64_t id = scheduler_.running().empty() ? scheduler_.waiting().front()->id
                                                       : scheduler_.running().front()->id;
      const std::unique_ptr<Sequence> sequence = scheduler_.remove(id);
      end(*sequence, reason, error);
    }
  }

  void publish_stats() {
    live_.running = static_cast<int64_t>(scheduler_.running().size());
    live_.waiting = static_cast<int64_t>(scheduler_.waiting().size());
    live_.cache_pages_used = scheduler_.pool().used();
    live_.preemptions = scheduler_.preemptions();
    live_.prefix_query_tokens = scheduler_.prefix_query_tokens();
    live_.prefix_hit_tokens = scheduler_.prefix_hit_tokens();
    const std::lock_guard lock(mutex_);
    stats_ = live_;
  }

  const LoadedModel& model_;
  const EngineOptions options_;
  const int64_t pages_;
  const int64_t pass_rows_;  // most of a pass

  // Of the engine's thread.
  model::PagedDecoder decoder_;
  Scheduler scheduler_;
  std::unique_ptr<engine::Stream> stream_;
  EngineStats live_;

  mutable std::mutex mutex_;
  std::condition_variable work_, idle_;
  std::vector<std::unique_ptr<Sequence>> arrivals_;
  std::vector<uint64_t> cancels_;
  uint64_t last_id_ = 0;
  int64_t active_ = 0;  // accepted and not finished
  int64_t accepted_ = 0;
  bool draining_ = false, stopping_ = false;
  EngineStats stats_;

  std::thread thread_;  // the last member: it uses all others
};

Engine::Engine(const LoadedModel& model, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
Engine::~Engine() = default;

std::optional<uint64_t> Engine::submit(GenerationRequest request, Sink sink) {
  return impl_->submit(std::move(request), std::move(sink));
}
void Engine::cancel(uint64_t id) { impl_->cancel(id); }
void Engine::drain() { impl_->drain(); }
EngineStats Engine::stats() const { return impl_->stats(); }
int64_t Engine::longest_text() const { return impl_->longest_text(); }

}  // namespace tutti::endpoint
