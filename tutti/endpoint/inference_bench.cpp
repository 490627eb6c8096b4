#include "tutti/endpoint/inference_bench.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/model/paged_decode.h"
#include "tutti/spec/model/params.h"

namespace tutti::endpoint {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 22;

std::vector<int32_t> random_tokens(int64_t count, uint64_t key, int64_t vocabulary) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(static_cast<int32_t>(random_u64(key, static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(vocabulary)));
  }
  return out;
}

// Requests of equal length, and when each token came.
class Timed {
 public:
  void run(Engine& engine, const std::vector<GenerationRequest>& requests) {
    times_.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine.submit(requests[i], [this, i](const GenerationOutput& out) {
        const std::lock_guard lock(mutex_);
        times_[i].push_back(monotonic_seconds());
        if (out.finish != FinishReason::none) ++ended_;
        changed_.notify_all();
      });
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == requests.size(); });
  }
  const std::vector<std::vector<double>>& times() const { return times_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<double>> times_;
  size_t ended_ = 0;
};

GenerationRequest greedy(std::vector<int32_t> prompt, int64_t tokens) {
  GenerationRequest out;
  out.prompt = std::move(prompt);
  out.sampling.max_tokens = tokens;
  out.sampling.temperature = 0;
  return out;
}

// Of parameters that products read: all but what is only looked up.
double product_bytes(const LoadedModel& model) {
  const model::Parameters parameters = model.weights->parameters();
  const spec::ModelConfig& config = model.config;
  double bytes = 0;
  for (const spec::PlacedParam& placed : model.weights->layout().params) {
    const bool looked_up = placed.name == "embedding.position.weight" ||
                           (placed.name == "embedding.token.weight" && !config.tied_embeddings);
    if (looked_up) continue;
    const engine::PackedMatrix packed = parameters.packed(placed.name);
    bytes += static_cast<double>(packed ? packed.layout().bytes / packed.rows *
                                              (placed.param.count() / packed.columns)
                                        : parameters.weight(placed.name).bytes());
  }
  return bytes;
}

}  // namespace

std::unique_ptr<LoadedModel> random_model(const spec::ModelConfig& config, WeightType weights,
                                          int threads) {
  auto out = std::make_unique<LoadedModel>();
  out->path = out->name = config.name;
  out->config = config;
  out->threads = threads;
  const std::optional<PackKind> pack = weights == WeightType::int8   ? std::optional(PackKind::int8)
                                       : weights == WeightType::int4 ? std::optional(PackKind::int4)
                                                                     : std::nullopt;
  out->weights = std::make_unique<model::InferenceWeights>(
      config, spec::param_layout(spec::param_table(config)),
      weights == WeightType::f32 ? DType::f32 : DType::bf16, pack);
  std::vector<float> values(static_cast<size_t>(kElementsAtOnce));
  fill_normal(values.data(), kElementsAtOnce, stream_key(1, "bench"), 0, 0, 0.02F);
  for (const spec::PlacedParam& placed : out->weights->layout().params) {
    const int64_t columns = placed.param.shape.back();
    const int64_t at_once = std::max<int64_t>(1, kElementsAtOnce / columns) * columns;
    values.resize(static_cast<size_t>(std::max(at_once, kElementsAtOnce)));
    for (int64_t first = 0; first < placed.param.count(); first += at_once) {
      out->weights->set(placed, first, std::min(at_once, placed.param.count() - first),
                        values.data());
    }
  }
  return out;
}

InferenceSpeed bench_inference(const LoadedModel& model, const InferenceBenchOptions& options) {
  const int64_t longest =
      std::max(options.prompt_tokens + 1, options.start_tokens + options.answer_tokens + 1);
  if (longest > model.context()) {
    fail(ErrorKind::usage, "bench: texts of {} tokens exceed the model's context of {}", longest,
         model.context());
  }
  EngineOptions engine_options;
  engine_options.threads = options.threads;
  engine_options.prefix_caching = false;
  const int64_t most = *std::max_element(options.streams.begin(), options.streams.end());
  engine_options.max_sequences = most;
  const int64_t row_bytes =
      model::PagedDecoder::cache_row_bytes(model.config, model.weights->compute());
  engine_options.cache_bytes =
      row_bytes * (longest + engine_options.page_tokens) * std::max<int64_t>(most, 1);
  Engine engine(model, engine_options);
  const int64_t vocabulary = model.config.vocabulary;
  InferenceSpeed out;
  {  // The first products of a shape find their kernels.
    Timed warm;
    const int64_t tokens = std::min(engine_options.prefill_tokens, options.prompt_tokens);
    warm.run(engine, {greedy(random_tokens(tokens, 1, vocabulary), 1)});
  }
  Timed prompt;
  const double begin = monotonic_seconds();
  prompt.run(engine, {greedy(random_tokens(options.prompt_tokens, 2, vocabulary), 1)});
  out.prompt.tokens = options.prompt_tokens;
  out.prompt.seconds = prompt.times()[0][0] - begin;
  // Embeddings are looked up, and the head computes one row.
  const double products = static_cast<double>(spec::active_count(model.config)) -
                          static_cast<double>((model.config.tied_embeddings ? 1 : 2) * vocabulary *
                                              model.config.hidden);
  out.prompt.flops = 2 * products * static_cast<double>(options.prompt_tokens);
  const double weight_bytes = product_bytes(model);
  for (const int64_t streams : options.streams) {
    std::vector<GenerationRequest> requests;
    for (int64_t i = 0; i < streams; ++i) {
      requests.push_back(
          greedy(random_tokens(options.start_tokens, 10 + static_cast<uint64_t>(i), vocabulary),
                 options.answer_tokens));
    }
    Timed timed;
    timed.run(engine, requests);
    // From when all have begun to the first end; all decode in every step between.
    double from = 0;
    double to = timed.times()[0].back();
    for (const std::vector<double>& times : timed.times()) {
      from = std::max(from, times.front());
      to = std::min(to, times.back());
    }
    AnswerSpeed speed;
    speed.streams = streams;
    speed.seconds = to - from;
    int64_t tokens = 0;
    for (const std::vector<double>& times : timed.times()) {
      tokens += std::count_if(times.begin(), times.end(),
                              [&](double time) { return time > from && time <= to; });
    }
    speed.steps = tokens / streams;
    speed.tokens_per_second = static_cast<double>(tokens) / std::max(speed.seconds, 1e-9);
    const auto length = static_cast<double>(options.start_tokens + options.answer_tokens / 2);
    speed.bytes_per_step = weight_bytes + static_cast<double>(streams * row_bytes) * length;
    out.answers.push_back(speed);
  }
  return out;
}

}  // namespace tutti::endpoint
