// `tutti bench endpoint`: a load of requests on an HTTP endpoint, and how long they take.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/http_client.h"
#include "tutti/base/rng.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/bench/endpoint_load.h"
#include "tutti/cli/bench/endpoint_result.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

struct EndpointBench {
  std::string url;
  std::string model;
  std::string key;
  LoadOptions load;
  std::string prompt_tokens = "~256";
  std::string answer_tokens = "~64";
  int64_t shared_tokens = 0;  // of all prompts, at their start
  std::string first_target = "1s";
  std::string token_target = "100ms";
  std::string patience = "10min";
  std::string page;
  bool json = false;
};

// Every language model's tokenizer has many tokens in this.
constexpr const char* kSampleText =
    "The clock in the tower had stopped at ten past four, and for as long as anyone could remember "
    "the town had lived by it. Bakers baked, ferries crossed the river 17 times a day, and letters "
    "came when they came. Then a woman with a case of small brass tools climbed the 212 steps, "
    "asked what the time was, and laughed. By evening the hands moved again; by morning half of "
    "the shops had changed their signs, and the other half their minds.";

using Headers = std::vector<std::pair<std::string, std::string>>;

Headers headers_of(const EndpointBench& bench) {
  Headers headers = {{"Content-Type", "application/json"}};
  if (!bench.key.empty()) headers.emplace_back("Authorization", "Bearer " + bench.key);
  return headers;
}

// What OpenAI's API says in its errors; else the beginning of the body.
std::string error_of(const HttpAnswer& answer) {
  std::string message = printable(std::string_view(answer.body).substr(0, 200));
  try {
    message = parse_json(answer.body, "").at("error").at("message").get<std::string>();
  } catch (const std::exception&) {
    // Not in that form: as it is.
  }
  return fmt::format("HTTP {}: {}", answer.status, message);
}

HttpAnswer ask_for(const EndpointBench& bench, const HttpUrl& server, const std::string& method,
                   const std::string& path, const std::string& body) {
  HttpAsk ask;
  ask.method = method;
  ask.path = path;
  ask.headers = headers_of(bench);
  ask.body = body;
  HttpAnswer answer = http_ask(server, ask);
  if (answer.status != 200) {
    fail(ErrorKind::io, "{}: {} {}: {}", bench.url, method, path, error_of(answer));
  }
  return answer;
}

std::string first_model(const EndpointBench& bench, const HttpUrl& server) {
  const HttpAnswer answer = ask_for(bench, server, "GET", "/v1/models", "");
  const Json list = json_get<Json>(parse_json(answer.body, "/v1/models"), "data", "/v1/models");
  if (!list.is_array() || list.empty()) fail(ErrorKind::io, "{} serves no model", bench.url);
  return json_get<std::string>(list.front(), "id", "/v1/models");
}

// Tokens to make prompts of.
std::vector<int32_t> sample_tokens(const EndpointBench& bench, const HttpUrl& server) {
  const Json body = {
      {"model", bench.model}, {"prompt", kSampleText}, {"add_special_tokens", false}};
  const HttpAnswer answer = ask_for(bench, server, "POST", "/tokenize", dump_json(body));
  auto tokens =
      json_get<std::vector<int32_t>>(parse_json(answer.body, "/tokenize"), "tokens", "/tokenize");
  if (tokens.empty()) fail(ErrorKind::io, "{}: /tokenize gives no tokens", bench.url);
  return tokens;
}

std::string body_of(const EndpointBench& bench, const PlannedRequest& planned, size_t index,
                    const std::vector<int32_t>& sample) {
  const uint64_t shared = stream_key(bench.load.seed, "shared prefix");
  const uint64_t own = stream_key(bench.load.seed, "prompt", std::to_string(index));
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < planned.prompt_tokens; ++i) {
    const uint64_t key = i < bench.shared_tokens ? shared : own;
    prompt.push_back(sample[random_u64(key, static_cast<uint64_t>(i)) % sample.size()]);
  }
  return dump_json({{"model", bench.model},
                    {"prompt", std::move(prompt)},
                    {"max_tokens", planned.answer_tokens},
                    {"ignore_eos", true},
                    {"temperature", 1},
                    {"seed", index},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}});
}

// Reads the events of one stream.
class StreamClock {
 public:
  StreamClock(MeasuredRequest& request, double start) : request_(request), start_(start) {}

  void take(std::string_view piece) {
    pending_ += piece;
    for (size_t end = 0; (end = pending_.find("\n\n")) != std::string::npos;) {
      event(pending_.substr(0, end));
      pending_.erase(0, end + 2);
    }
  }
  bool is_done() const { return is_done_; }

 private:
  void event(const std::string& line) {
    constexpr std::string_view kData = "data: ";
    if (!starts_with(line, kData)) return;
    const std::string data = line.substr(kData.size());
    if (data == "[DONE]") {
      is_done_ = true;
      return;
    }
    const Json json = parse_json(data, "an event");
    if (json.contains("error")) {
      request_.error = "in the stream: " + dump_json(json["error"]);
      return;
    }
    if (json.contains("usage") && json["usage"].is_object()) take_usage(json["usage"]);
    if (!json.contains("choices") || json["choices"].empty()) return;
    request_.last_seconds = monotonic_seconds() - start_;
    if (request_.first_seconds == 0) request_.first_seconds = request_.last_seconds;
  }

  void take_usage(const Json& usage) {
    request_.prompt_tokens = usage.value("prompt_tokens", int64_t{0});
    request_.answer_tokens = usage.value("completion_tokens", int64_t{0});
    const auto details = usage.find("prompt_tokens_details");
    if (details != usage.end() && details->is_object()) {
      request_.cached_tokens = details->value("cached_tokens", int64_t{0});
    }
  }

  MeasuredRequest& request_;
  double start_;
  std::string pending_;
  bool is_done_ = false;
};

void measure(const EndpointBench& bench, const HttpUrl& server, const std::string& body,
             double start, MeasuredRequest& request) {
  try {
    HttpAsk ask;
    ask.method = "POST";
    ask.path = "/v1/completions";
    ask.headers = headers_of(bench);
    ask.body = body;
    ask.patience_seconds = parse_seconds(bench.patience, "--patience");
    StreamClock clock(request, start);
    const HttpAnswer answer =
        http_ask(server, ask, [&](std::string_view piece) { clock.take(piece); });
    request.status = answer.status;
    if (answer.status != 200) {
      request.error = error_of(answer);
    } else if (request.error.empty() && (!clock.is_done() || request.first_seconds == 0)) {
      request.error = "the stream ended early";
    }
  } catch (const std::exception& error) {
    request.error = error.what();
  }
}

int run_endpoint_bench(EndpointBench bench) {
  watch_signals();
  bench.load.prompt = parse_token_lengths(bench.prompt_tokens, "--prompt-tokens");
  bench.load.answer = parse_token_lengths(bench.answer_tokens, "--answer-tokens");
  parse_seconds(bench.patience, "--patience");
  EndpointResult result;
  result.rate = bench.load.rate;
  result.targets = {parse_seconds(bench.first_target, "--first-token-target"),
                    parse_seconds(bench.token_target, "--per-token-target")};
  const HttpUrl server = parse_http_url(bench.url);
  if (bench.model.empty()) bench.model = first_model(bench, server);
  const std::vector<int32_t> sample = sample_tokens(bench, server);
  const std::vector<PlannedRequest> plan = plan_load(bench.load);
  std::vector<std::string> bodies;
  for (size_t i = 0; i < plan.size(); ++i) bodies.push_back(body_of(bench, plan[i], i, sample));

  result.requests.resize(plan.size());
  std::vector<std::thread> clients;
  std::atomic<int64_t> done = 0;
  telemetry::ProgressBar progress("bench", "requests");
  const double start = monotonic_seconds();
  const auto join_all = [&] {
    for (std::thread& client : clients) client.join();
    clients.clear();
  };
  for (size_t i = 0; i < plan.size() && stop_signal() == 0; ++i) {
    while (monotonic_seconds() - start < plan[i].at_seconds && stop_signal() == 0) {
      sleep_seconds(std::clamp(plan[i].at_seconds - (monotonic_seconds() - start), 0.0, 0.05));
    }
    result.requests[i].planned_seconds = plan[i].at_seconds;
    clients.emplace_back([&, i] {
      measure(bench, server, bodies[i], start, result.requests[i]);
      ++done;
    });
    progress.update(done, static_cast<int64_t>(plan.size()));
  }
  while (done < static_cast<int64_t>(clients.size()) && stop_signal() == 0) {
    progress.update(done, static_cast<int64_t>(plan.size()));
    sleep_seconds(0.02);
  }
  join_all();
  progress.finish();
  throw_if_interrupted();
  for (const MeasuredRequest& request : result.requests) {
    result.seconds = std::max(result.seconds, request.last_seconds);
  }
  if (!bench.page.empty()) {
    write_file_atomic(posix_file_system(), bench.page, endpoint_result_page(result, bench.url));
  }
  if (bench.json) {
    Json json = endpoint_result_json(result);
    json["url"] = bench.url;
    json["model"] = bench.model;
    json["seed"] = bench.load.seed;
    print_json(json);
  } else {
    print_text(endpoint_result_text(result));
  }
  const bool any = std::any_of(result.requests.begin(), result.requests.end(),
                               [](const MeasuredRequest& one) { return one.error.empty(); });
  return any ? exit_ok : exit_failed;
}

}  // namespace

void add_bench_endpoint(CLI::App& bench, Action& action) {
  const auto arguments = std::make_shared<EndpointBench>();
  CLI::App* command = bench.add_subcommand(
      "endpoint", "Latency, throughput and goodput of an HTTP endpoint under load");
  command->add_option("URL", arguments->url, "Of `tutti endpoint`, vLLM or the like")->required();
  command->add_option("--model", arguments->model, "Name of the model; default: the first");
  command->add_option("--api-key", arguments->key, "API key")->envname("TUTTI_API_KEY");
  command->add_option("--rate", arguments->load.rate, "Requests per second, on average")
      ->capture_default_str()
      ->check(between(1e-6, 1e6));
  command->add_option("--requests", arguments->load.requests, "Requests in all")
      ->capture_default_str()
      ->check(between(1, 10000));
  command
      ->add_option("--prompt-tokens", arguments->prompt_tokens,
                   "Lengths of prompts: 128, 64-256 (uniform) or ~128 (log-normal, mean)")
      ->capture_default_str();
  command->add_option("--answer-tokens", arguments->answer_tokens, "Lengths of answers, likewise")
      ->capture_default_str();
  command
      ->add_option("--shared-tokens", arguments->shared_tokens,
                   "Tokens that all prompts begin with, as a common instruction would")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--first-token-target", arguments->first_target,
                   "Goodput counts requests with their first token within it")
      ->capture_default_str();
  command
      ->add_option("--per-token-target", arguments->token_target,
                   "and so much time per further token")
      ->capture_default_str();
  command
      ->add_option("--patience", arguments->patience, "A request fails that is silent for so long")
      ->capture_default_str();
  command->add_option("--seed", arguments->load.seed, "Same seed, same load")
      ->capture_default_str();
  command->add_option("--out", arguments->page, "Write an HTML page with the distributions")
      ->type_name("FILE");
  add_json_option(*command, arguments->json);
  command->footer(
      "Requests arrive as a Poisson process, whether or not earlier ones have ended; a time\n"
      "begins when its request was to be sent.\n\n"
      "Example:\n"
      "  tutti bench endpoint http://127.0.0.1:8000 --rate 2 --requests 100");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_endpoint_bench(*arguments); }; });
}

}  // namespace tutti::cli
