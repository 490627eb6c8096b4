// Serves one model to many requests at a time: continuous batching (Orca, Yu et al. 2022) over a
// paged cache of keys and values (vLLM, Kwon et al. 2023).
//
// One thread computes, step after step. A step decodes one token of every running request, in one
// pass over the weights, and computes about prefill_tokens of prompts beside it (chunked prefill):
// prompts are cut at multiples of prefill_tokens.
// Requests join and leave between steps. Full pages of the cache are found again by the tokens from
// the start of their text on, so that requests share common prefixes; pages that no request uses
// stay until memory is needed, the longest unused go first. Where pages run out, the youngest
// request gives up its own and waits; what it has generated it keeps, and computes again.
//
// Requests of the model's adapters are computed beside those of the model alone, in the same passes
// over its weights; prefixes are shared among those of one adapter only.
//
// Other requests do not change what a request gets. Products of at most engine::kFewRows rows have
// the same bits whatever the rows beside them, and prompts are computed by themselves; so texts are
// the same bits alone or beside others. How a prompt is cut into passes does change the rounding of
// its keys and values where a pass has more rows than that: chunks, prefixes found in the cache and
// preemption can then decide between tokens that are almost equally likely. With batch_invariant no
// pass has more rows, and nothing changes any bit.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/endpoint/histogram.h"
#include "tutti/endpoint/model.h"
#include "tutti/endpoint/sampling.h"

namespace tutti::endpoint {

struct GenerationRequest {
  std::vector<int32_t> prompt;  // at least one token
  SamplingParams sampling;
  std::string adapter;  // of LoadedModel::adapters; "": the model as it is
};

enum class FinishReason : uint8_t {
  none,
  stop,       // a token of SamplingParams::stop_tokens, which is in the same output
  length,     // max_tokens, the context or the whole cache
  cancelled,  // by cancel() or the end of the engine
  error,      // the engine's; GenerationOutput::error says what
};

struct GenerationOutput {
  int32_t token = -1;             // -1: none in this output, only a finish
  float logprob = 0;              // with top_logprobs >= 0
  std::vector<TokenLogprob> top;  // most likely first
  FinishReason finish = FinishReason::none;
  std::string error;
  int64_t cached_prompt_tokens = 0;  // taken from the cache when the request first ran
};

struct EngineOptions {
  int64_t cache_bytes = 0;  // of keys and values; 0: 4 GiB, but at most half of the memory that is
                            // available, and what max_sequences texts of the model's context take
  int64_t page_tokens = 16;
  int64_t max_sequences = 16;    // that run side by side
  int64_t max_waiting = 256;     // beyond: submit refuses
  int64_t prefill_tokens = 256;  // of prompts in a step; less than twice as many are computed
  bool prefix_caching = true;
  bool batch_invariant = false;  // prompts in passes of engine::kFewRows rows: the same bits always
  int threads = 0;               // 0: one per core
};

// Counters are since the engine's start. In parentheses: the name of vLLM's metric.
struct EngineStats {
  int64_t running = 0;           // (num_requests_running)
  int64_t waiting = 0;           // (num_requests_waiting)
  int64_t cache_pages = 0;       // in all
  int64_t cache_pages_used = 0;  // by running requests (their share: kv_cache_usage_perc)
  int64_t cache_bytes = 0;
  int64_t preemptions = 0;          // (num_preemptions_total)
  int64_t prefix_query_tokens = 0;  // looked for in the cache (prefix_cache_queries_total)
  int64_t prefix_hit_tokens = 0;    // and found (prefix_cache_hits_total)
  int64_t prompt_tokens = 0;        // of prompts that were computed or found (prompt_tokens_total)
  int64_t generation_tokens = 0;    // (generation_tokens_total)
  int64_t requests = 0;             // accepted
  int64_t finished_stop = 0, finished_length = 0, finished_cancelled = 0, finished_error = 0;
  int64_t steps = 0;
  double step_seconds = 0;                  // in passes of the model
  Histogram time_to_first_token_seconds;    // (time_to_first_token_seconds)
  Histogram time_per_output_token_seconds;  // between tokens (inter_token_latency_seconds)
  Histogram queue_seconds;                  // (request_queue_time_seconds)
  Histogram end_to_end_seconds;             // (e2e_request_latency_seconds)
};

class Engine {
 public:
  // Starts the thread; `model` outlives the engine. Throws usage for options that cannot be, such
  // as a cache of fewer pages than one text needs.
  Engine(const LoadedModel& model, const EngineOptions& options);
  ~Engine();  // cancels what runs and waits
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Called on the engine's thread, in order; must not block. The last call has finish != none.
  using Sink = std::function<void(const GenerationOutput&)>;
  // The request's id; nullopt when max_waiting requests wait or the engine drains. Throws usage for
  // prompts that are empty, exceed the context or have unknown tokens, for parameters out of range,
  // and for unknown adapters.
  std::optional<uint64_t> submit(GenerationRequest request, Sink sink);

  // Its pages are free after the step that runs, and its sink gets `cancelled`. An id that has
  // finished or never was is ignored.
  void cancel(uint64_t id);

  // Refuses new requests, and returns when those that were accepted have finished.
  void drain();

  EngineStats stats() const;
  // The longest text, prompt and answer: the model's context, or what the whole cache holds.
  int64_t longest_text() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::endpoint
