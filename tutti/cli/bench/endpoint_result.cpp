#include "tutti/cli/bench/endpoint_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tutti/base/quantile.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/report/bars.h"
#include "tutti/report/page.h"

namespace tutti::cli {
namespace {

constexpr double kQuantiles[] = {0.5, 0.9, 0.99};

// The requests that succeeded, in numbers.
struct Totals {
  std::vector<double> first_token, per_token, latency;  // seconds
  int64_t prompt_tokens = 0, cached_tokens = 0, answer_tokens = 0;
  int64_t succeeded = 0, good = 0;
  std::map<std::string, int64_t> errors;
};

bool is_good(const MeasuredRequest& request, const LatencyTargets& targets) {
  return request.first_token_seconds() <= targets.first_token_seconds &&
         request.per_token_seconds() <= targets.per_token_seconds;
}

Totals totals_of(const EndpointResult& result) {
  Totals totals;
  for (const MeasuredRequest& request : result.requests) {
    if (!request.error.empty()) {
      ++totals.errors[request.error];
      continue;
    }
    ++totals.succeeded;
    totals.prompt_tokens += request.prompt_tokens;
    totals.cached_tokens += request.cached_tokens;
    totals.answer_tokens += request.answer_tokens;
    totals.first_token.push_back(request.first_token_seconds());
    totals.latency.push_back(request.latency_seconds());
    if (request.answer_tokens > 1) totals.per_token.push_back(request.per_token_seconds());
    if (is_good(request, result.targets)) ++totals.good;
  }
  return totals;
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Json times_json(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  return {{"mean", mean_of(values)},
          {"p50", quantile(values, 0.5)},
          {"p90", quantile(values, 0.9)},
          {"p99", quantile(values, 0.99)},
          {"max", quantile(values, 1)}};
}

std::vector<std::string> times_row(const std::string& name, const std::vector<double>& values) {
  std::vector<std::string> row = {name};
  if (values.empty()) return {name, "-", "-", "-", "-"};
  row.push_back(format_seconds(mean_of(values)));
  for (const double at : kQuantiles) row.push_back(format_seconds(quantile(values, at)));
  return row;
}

double per_second(const EndpointResult& result, int64_t count) {
  return result.seconds > 0 ? static_cast<double>(count) / result.seconds : 0;
}

report::Histogram histogram_of(const char* id, const char* title, const std::vector<double>& values,
                               double target) {
  report::Histogram histogram;
  histogram.id = id;
  histogram.title = title;
  histogram.quantity = report::Quantity::seconds;
  histogram.what = "requests";
  histogram.values = values;
  if (values.empty()) return histogram;
  histogram.marks = {{quantile(values, 0.5), "p50"}, {quantile(values, 0.99), "p99"}};
  if (target > 0) histogram.marks.push_back({target, "target"});
  return histogram;
}

}  // namespace

double MeasuredRequest::per_token_seconds() const {
  if (answer_tokens < 2) return 0;
  return (last_seconds - first_seconds) / static_cast<double>(answer_tokens - 1);
}

Json endpoint_result_json(const EndpointResult& result) {
  const Totals totals = totals_of(result);
  Json errors = Json::array();
  for (const auto& [error, count] : totals.errors) {
    errors.push_back({{"error", error}, {"requests", count}});
  }
  return {{"rate", result.rate},
          {"seconds", result.seconds},
          {"requests", result.requests.size()},
          {"succeeded", totals.succeeded},
          {"errors", std::move(errors)},
          {"prompt_tokens", totals.prompt_tokens},
          {"cached_tokens", totals.cached_tokens},
          {"answer_tokens", totals.answer_tokens},
          {"requests_per_second", per_second(result, totals.succeeded)},
          {"prompt_tokens_per_second", per_second(result, totals.prompt_tokens)},
          {"answer_tokens_per_second", per_second(result, totals.answer_tokens)},
          {"first_token_seconds", times_json(totals.first_token)},
          {"per_token_seconds", times_json(totals.per_token)},
          {"latency_seconds", times_json(totals.latency)},
          {"targets",
           {{"first_token_seconds", result.targets.first_token_seconds},
            {"per_token_seconds", result.targets.per_token_seconds}}},
          {"good_requests", totals.good},
          {"goodput_per_second", per_second(result, totals.good)}};
}

std::string endpoint_result_text(const EndpointResult& result) {
  const Totals totals = totals_of(result);
  std::string text = format_table({{"", "mean", "p50", "p90", "p99"},
                                   times_row("time to first token", totals.first_token),
                                   times_row("time per output token", totals.per_token),
                                   times_row("latency", totals.latency)});
  text +=
      "\n" +
      format_pairs(
          {{"requests", fmt::format("{} of {} succeeded in {}", totals.succeeded,
                                    result.requests.size(), format_seconds(result.seconds))},
           {"throughput",
            fmt::format("{:.2f} requests/s, {}", per_second(result, totals.succeeded),
                        format_rate(per_second(result, totals.answer_tokens), "generated tokens"))},
           {"prompts", fmt::format("{} tokens, {} of them from the cache", totals.prompt_tokens,
                                   totals.cached_tokens)},
           {"goodput",
            fmt::format("{:.2f} requests/s within {} to the first token and {} per token ({} "
                        "requests)",
                        per_second(result, totals.good),
                        format_seconds(result.targets.first_token_seconds),
                        format_seconds(result.targets.per_token_seconds), totals.good)}});
  for (const auto& [error, count] : totals.errors) {
    text += fmt::format("{} failed: {}\n", count, printable(error));
  }
  return text;
}

std::string endpoint_result_page(const EndpointResult& result, const std::string& url) {
  const Totals totals = totals_of(result);
  report::Page page;
  page.kind = "Endpoint";
  page.title = url;
  page.lead = fmt::format("{} requests at {:.3g} per second, as a Poisson process.",
                          result.requests.size(), result.rate);
  const auto share = [&](int64_t count) {
    return fmt::format("{:.1f}% of {}",
                       100.0 * static_cast<double>(count) /
                           static_cast<double>(std::max<size_t>(result.requests.size(), 1)),
                       result.requests.size());
  };
  page.tiles = {
      {"Throughput", fmt::format("{:.2f} requests/s", per_second(result, totals.succeeded)),
       share(totals.succeeded) + " succeeded"},
      {"Goodput", fmt::format("{:.2f} requests/s", per_second(result, totals.good)),
       share(totals.good) + " within the targets"},
      {"Generated", format_rate(per_second(result, totals.answer_tokens), "tokens"), ""}};
  if (!totals.latency.empty()) {
    page.tiles.push_back({"Latency", format_seconds(quantile(totals.latency, 0.5)),
                          "p99 " + format_seconds(quantile(totals.latency, 0.99))});
  }
  page.sections.push_back({"times", "Times",
                           "<div class=\"grid2\">" +
                               draw(histogram_of("first", "Time to first token", totals.first_token,
                                                 result.targets.first_token_seconds)) +
                               draw(histogram_of("token", "Time per output token", totals.per_token,
                                                 result.targets.per_token_seconds)) +
                               draw(histogram_of("latency", "Latency", totals.latency, 0)) +
                               "</div>"});
  return report::render(page);
}

}  // namespace tutti::cli
