#include "tutti/endpoint/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <functional>
#include <limits>

namespace tutti::endpoint {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
  explicit Families(const std::vector<ModelMetrics>& models) : models_(models) {}

  using Reader = std::function<double(const ModelMetrics&)>;
  using HistogramReader = std::function<const Histogram&(const EngineStats&)>;

  void gauge(const char* name, const char* help, const Reader& read) {
    MetricFamily family{name, help, MetricType::Gauge, {}};
    for (const ModelMetrics& model : models_) {
      ClientMetric metric = labelled(model);
      metric.gauge.value = read(model);
      family.metric.push_back(std::move(metric));
    }
    all_.push_back(std::move(family));
  }

  void counter(const char* name, const char* help, const Reader& read) {
    MetricFamily family{name, help, MetricType::Counter, {}};
    for (const ModelMetrics& model : models_) {
      ClientMetric metric = labelled(model);
      metric.counter.value = read(model);
      family.metric.push_back(std::move(metric));
    }
    all_.push_back(std::move(family));
  }

  void histogram(const char* name, const char* help, const HistogramReader& read) {
    MetricFamily family{name, help, MetricType::Histogram, {}};
    for (const ModelMetrics& model : models_) {
      const Histogram& histogram = read(model.stats);
      ClientMetric metric = labelled(model);
      metric.histogram.sample_count = static_cast<uint64_t>(histogram.count);
      metric.histogram.sample_sum = histogram.sum;
      uint64_t below = 0;
      for (size_t i = 0; i < histogram.counts.size(); ++i) {
        below += static_cast<uint64_t>(histogram.counts[i]);
        const double bound = i < histogram.bounds.size() ? histogram.bounds[i]
                                                         : std::numeric_limits<double>::infinity();
        metric.histogram.bucket.push_back({below, bound});
      }
      family.metric.push_back(std::move(metric));
    }
    all_.push_back(std::move(family));
  }

  void finished(const char* name, const char* help) {
    MetricFamily family{name, help, MetricType::Counter, {}};
    for (const ModelMetrics& model : models_) {
      const std::pair<const char*, int64_t> reasons[] = {{"stop", model.stats.finished_stop},
                                                         {"length", model.stats.finished_length},
                                                         {"abort", model.stats.finished_cancelled},
                                                         {"error", model.stats.finished_error}};
      for (const auto& [reason, count] : reasons) {
        ClientMetric metric = labelled(model);
        metric.label.push_back({"finished_reason", reason});
        metric.counter.value = static_cast<double>(count);
        family.metric.push_back(std::move(metric));
      }
    }
    all_.push_back(std::move(family));
  }

  void http(const HttpMetrics& http) {
    single("tutti_endpoint_connections", "Open connections.",
           static_cast<double>(http.connections));
    single("tutti_endpoint_unanswered_requests", "Requests whose answer is not sent yet.",
           static_cast<double>(http.unanswered));
    MetricFamily family{"tutti_endpoint_answers_total",
                        "Answers by route and status of HTTP.",
                        MetricType::Counter,
                        {}};
    for (const auto& [key, count] : http.answers) {
      ClientMetric metric;
      metric.label = {{"route", key.first}, {"status", std::to_string(key.second)}};
      metric.counter.value = static_cast<double>(count);
      family.metric.push_back(std::move(metric));
    }
    all_.push_back(std::move(family));
  }

  std::string text() const { return prometheus::TextSerializer().Serialize(all_); }

 private:
  static ClientMetric labelled(const ModelMetrics& model) {
    ClientMetric metric;
    metric.label = {{"model_name", model.name}};
    return metric;
  }
  void single(const char* name, const char* help, double value) {
    MetricFamily family{name, help, MetricType::Gauge, {}};
    ClientMetric metric;
    metric.gauge.value = value;
    family.metric.push_back(std::move(metric));
    all_.push_back(std::move(family));
  }

  const std::vector<ModelMetrics>& models_;
  std::vector<MetricFamily> all_;
};

// A member of EngineStats as a number.
Families::Reader stat(int64_t EngineStats::*member) {
  return [member](const ModelMetrics& model) { return static_cast<double>(model.stats.*member); };
}

double used_share(const ModelMetrics& model) {
  if (model.stats.cache_pages == 0) return 0;
  return static_cast<double>(model.stats.cache_pages_used) /
         static_cast<double>(model.stats.cache_pages);
}

}  // namespace

std::string metrics_text(const std::vector<ModelMetrics>& models, const HttpMetrics& http) {
  Families all(models);
  all.gauge("vllm:num_requests_running", "Requests that run.", stat(&EngineStats::running));
  all.gauge("vllm:num_requests_waiting", "Requests that wait.", stat(&EngineStats::waiting));
  all.gauge("vllm:kv_cache_usage_perc", "Share of the cache's pages that requests use, 0 to 1.",
            used_share);
  all.counter("vllm:num_preemptions_total", "Requests that gave up their pages to others.",
              stat(&EngineStats::preemptions));
  all.counter("vllm:prefix_cache_queries_total", "Tokens looked for in the prefix cache.",
              stat(&EngineStats::prefix_query_tokens));
  all.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.",
              stat(&EngineStats::prefix_hit_tokens));
  all.counter("vllm:prompt_tokens_total", "Tokens of prompts, computed or found.",
              stat(&EngineStats::prompt_tokens));
  all.counter("vllm:generation_tokens_total", "Tokens generated.",
              stat(&EngineStats::generation_tokens));
  all.finished("vllm:request_success_total", "Requests that have ended, by reason.");
  all.histogram("vllm:time_to_first_token_seconds", "From a request to its first token.",
                [](const EngineStats& stats) -> const Histogram& {
                  return stats.time_to_first_token_seconds;
                });
  all.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.",
                [](const EngineStats& stats) -> const Histogram& {
                  return stats.time_per_output_token_seconds;
                });
  all.histogram("vllm:request_queue_time_seconds", "From a request until it first runs.",
                [](const EngineStats& stats) -> const Histogram& { return stats.queue_seconds; });
  all.histogram(
      "vllm:e2e_request_latency_seconds", "From a request to its last token.",
      [](const EngineStats& stats) -> const Histogram& { return stats.end_to_end_seconds; });
  all.gauge("tutti_endpoint_cache_pages", "Pages of the cache of keys and values.",
            stat(&EngineStats::cache_pages));
  all.gauge("tutti_endpoint_cache_pages_used", "Pages that running requests use.",
            stat(&EngineStats::cache_pages_used));
  all.gauge("tutti_endpoint_cache_bytes", "Memory of the cache.", stat(&EngineStats::cache_bytes));
  all.gauge("tutti_endpoint_weight_bytes", "Memory of the weights.",
            [](const ModelMetrics& model) { return static_cast<double>(model.resident_bytes); });
  all.gauge("tutti_endpoint_context_tokens", "The longest text, prompt and answer.",
            [](const ModelMetrics& model) { return static_cast<double>(model.context); });
  all.counter("tutti_endpoint_steps_total", "Steps of the engine.", stat(&EngineStats::steps));
  all.counter("tutti_endpoint_step_seconds_total", "Time in steps of the engine.",
              [](const ModelMetrics& model) { return model.stats.step_seconds; });
  all.http(http);
  return all.text();
}

}  // namespace tutti::endpoint
