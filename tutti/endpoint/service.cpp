#include "tutti/endpoint/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <utility>

#include "tutti/base/client_address.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/rng.h"
#include "tutti/base/text.h"
#include "tutti/endpoint/answer.h"
#include "tutti/endpoint/chat_page.h"
#include "tutti/endpoint/metrics.h"
#include "tutti/endpoint/openai_error.h"
#include "tutti/endpoint/openai_request.h"
#include "tutti/endpoint/prompts.h"

namespace tutti::endpoint {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's
constexpr const char* kBearer = "Bearer ";
constexpr const char* kModelPath = "/v1/models/";
constexpr double kDrainPauseSeconds = 0.02;

// Without the port.
std::string host_name_of(const std::string& host) {
  if (starts_with(host, "[")) {
    const size_t end = host.find(']') + 1;
    return end == host.size() || host[end] == ':' ? host.substr(0, end) : host;
  }
  return host.substr(0, host.find(':'));
}

HttpResponse json_response(const Json& json) {
  HttpResponse response;
  response.content_type = "application/json";
  response.body = dump_json(json) + "\n";
  return response;
}

}  // namespace

struct Service::State {
  explicit State(ServiceOptions given)
      : options(std::move(given)),
        started(static_cast<int64_t>(wall_seconds())),
        random_key(stream_key(std::random_device()(), "endpoint")),
        server(server_options()) {}

  using Handler = HttpResponse (State::*)(const HttpRequest&);
  struct RouteEntry {
    const char* method;
    const char* path;
    Handler handler;
    bool is_open = false;  // without a key
  };
  static const std::vector<RouteEntry>& routes();

  ServiceOptions options;
  int64_t started;  // seconds since 1970
  uint64_t random_key;
  std::atomic<uint64_t> random_count = 0;
  std::atomic<bool> draining = false;
  std::mutex mutex;  // of answers
  std::map<std::pair<std::string, int>, int64_t> answers;
  HttpServer server;

  uint64_t random() { return random_u64(random_key, random_count++); }

  // Errors.

  HttpResponse answer(const HttpRequest& request) {
    std::string label = "other";
    HttpResponse response;
    try {
      response = route(request, label);
    } catch (const ApiError& error) {
      response = error_response(error);
    } catch (const std::exception& error) {
      options.log(fmt::format("{} {}: {}", request.method, printable(request.path), error.what()));
      response = error_response(ApiError(500, "the server could not do it"));
    }
    response.headers.emplace_back("X-Content-Type-Options", "nosniff");
    const std::scoped_lock lock(mutex);
    // Of one that is answered later: accepted. How it ended is in the engine's metrics.
    ++answers[{label, response.status}];
    return response;
  }

  HttpResponse route(const HttpRequest& request, std::string& label) {
    check_origin(request);
    std::string path = request.path;
    if (starts_with(path, kModelPath)) path = kModelPath;
    std::vector<std::string> allowed;
    for (const RouteEntry& entry : routes()) {
      if (path != entry.path) continue;
      label = path;
      allowed.emplace_back(entry.method);
      if (request.method != entry.method) continue;
      if (!entry.is_open) key_of(request);
      return (this->*entry.handler)(request);
    }
    if (allowed.empty()) {
      throw ApiError(404, fmt::format("there is nothing at {}", printable(request.path)));
    }
    HttpResponse response =
        error_response(ApiError(405, fmt::format("{} takes {}", path, join(allowed, " and "))));
    response.headers.emplace_back("Allow", join(allowed, ", "));
    return response;
  }

  // Who may ask.

  void check_origin(const HttpRequest& request) const {
    const std::string host = request.header("host");
    const std::string name = host_name_of(host);
    const bool is_named =
        std::find(options.hosts.begin(), options.hosts.end(), name) != options.hosts.end();
    if (is_loopback(options.address) && !is_named && !is_loopback(name)) {
      throw ApiError(421, fmt::format("this endpoint is not asked as '{}'; --host allows a name",
                                      printable(name)));
    }
    const std::string origin = request.header("origin");
    if (origin.empty() || origin == "http://" + host || origin == "https://" + host) return;
    throw ApiError(403, "pages of other sites may not ask this endpoint");
  }

  // The id of its API key; empty: none is asked for.
  std::string key_of(const HttpRequest& request) const {
    if (!options.identify) return {};
    const std::string header = request.header("authorization");
    if (starts_with(header, kBearer)) {
      const auto id = options.identify(header.substr(std::string_view(kBearer).size()));
      if (id) return *id;
    }
    throw ApiError(401,
                   header.empty() ? "no API key: send `Authorization: Bearer KEY`"
                                  : "the API key is not known here",
                   "", "invalid_api_key");
  }

  const ServedModel& model_of(const std::string& name) const {
    const auto is_model = [](const ServedModel& one) { return one.parent.empty(); };
    const std::vector<ServedModel>& models = options.models;
    const bool is_one = std::count_if(models.begin(), models.end(), is_model) == 1;
    if (name.empty() && is_one) return models.front();
    if (name.empty()) refuse_param("model", "'model' is missing");
    std::vector<std::string> known;
    for (const ServedModel& model : options.models) {
      if (model.name == name) return model;
      known.push_back(model.name);
    }
    throw ApiError(404,
                   fmt::format("the model '{}' is not served here; known: {}",
                               printable(std::string_view(name).substr(0, 200)), join(known, ", ")),
                   "model", "model_not_found");
  }

  void check_open() const {
    if (draining) throw ApiError(503, "the endpoint shuts down; ask another one");
  }

  // Answers of models.

  HttpResponse completions(const HttpRequest& request) {
    return generate(request, Route::completions);
  }
  HttpResponse chat_completions(const HttpRequest& request) {
    return generate(request, Route::chat);
  }

  HttpResponse generate(const HttpRequest& http, Route route) {
    check_open();
    const ApiRequest request = parse_api_request(parse_body(http.body), route);
    const ServedModel& served = model_of(request.model);
    AnswerPlan plan;
    plan.sampling = request.sampling;
    plan.sampling.seed = request.seed ? static_cast<uint64_t>(*request.seed) : random();
    plan.sampling.stop_tokens = request.stop_token_ids;
    if (!request.ignore_eos) {
      const auto& own = served.model->stop_tokens;
      plan.sampling.stop_tokens.insert(plan.sampling.stop_tokens.end(), own.begin(), own.end());
    }
    add_prompts(request, served, plan);
    plan.sampling.max_tokens = most_tokens(request, served, plan);
    plan.adapter = served.adapter;
    plan.n = request.n;
    plan.stops = request.stops;
    plan.stream = request.stream;
    plan.tokenizer = served.model->tokenizer.get();
    plan.head = {.route = route,
                 .id = fmt::format("{}-{:016x}{:016x}", route == Route::chat ? "chatcmpl" : "cmpl",
                                   random(), random()),
                 .model = served.name,
                 .created = static_cast<int64_t>(wall_seconds()),
                 .logprobs = request.sampling.top_logprobs >= 0,
                 .top_logprobs = request.sampling.top_logprobs,
                 .include_usage = request.include_usage};
    if (!plan.stops.empty() && plan.tokenizer == nullptr) {
      refuse_param("stop", "'stop' needs a tokenizer, which the model does not have");
    }
    if (options.meter != nullptr) meter_answer(*options.meter, key_of(http), plan);
    try {
      HttpResponse response;
      response.later = Answer::start(generator_of(*served.engine), std::move(plan));
      return response;
    } catch (const ApiError& error) {
      check_open();  // the engine refuses then, too
      throw ApiError(error);
    }
  }

  static void add_prompts(const ApiRequest& request, const ServedModel& served, AnswerPlan& plan) {
    if (request.route == Route::chat) {
      plan.prompts.push_back(encode_conversation(*served.model, request.conversation));
      return;
    }
    for (const Prompt& prompt : request.prompts) {
      const auto* text = std::get_if<std::string>(&prompt);
      if (text != nullptr) {
        plan.prompts.push_back(encode_text(*served.model, *text, request.add_special_tokens));
      } else {
        plan.prompts.push_back(std::get<std::vector<int32_t>>(prompt));
      }
      if (!request.echo) continue;
      plan.echoes.push_back(text != nullptr ? *text
                                            : decode_tokens(*served.model, plan.prompts.back()));
    }
  }

  // Of each choice: what was asked for, where it fits.
  static int64_t most_tokens(const ApiRequest& request, const ServedModel& served,
                             const AnswerPlan& plan) {
    const char* param = request.route == Route::chat ? "messages" : "prompt";
    int64_t longest = 0;
    for (const auto& prompt : plan.prompts) {
      if (prompt.empty()) {
        refuse_param(param, "'{}' has no tokens: give at least one character", param);
      }
      longest = std::max(longest, static_cast<int64_t>(prompt.size()));
    }
    const int64_t most = served.engine->longest_text();
    const int64_t left = most - longest;
    if (left < 1 || request.max_tokens.value_or(1) > left) {
      throw ApiError(
          400,
          fmt::format("the longest text of '{}' is {} tokens; the prompt has {} and {} more are "
                      "asked for",
                      served.name, most, longest, request.max_tokens.value_or(1)),
          left < 1 ? param : "max_tokens", "context_length_exceeded");
    }
    if (request.max_tokens) return *request.max_tokens;
    return request.route == Route::chat ? left : std::min(left, kDefaultCompletionTokens);
  }

  // vLLM's.

  HttpResponse tokenize(const HttpRequest& http) {
    const TokenizeRequest request = parse_tokenize(parse_body(http.body));
    const ServedModel& served = model_of(request.model);
    const std::vector<int32_t> tokens =
        request.prompt ? encode_text(*served.model, *request.prompt, request.add_special_tokens)
                       : encode_conversation(*served.model, request.conversation);
    Json texts = nullptr;
    if (request.return_token_strs) {
      texts = Json::array();
      for (const int32_t token : tokens) texts.push_back(decode_tokens(*served.model, {token}));
    }
    return json_response({{"count", tokens.size()},
                          {"max_model_len", served.engine->longest_text()},
                          {"tokens", tokens},
                          {"token_strs", std::move(texts)}});
  }

  HttpResponse detokenize(const HttpRequest& http) {
    const DetokenizeRequest request = parse_detokenize(parse_body(http.body));
    const ServedModel& served = model_of(request.model);
    return json_response({{"prompt", decode_tokens(*served.model, request.tokens)}});
  }

  // About the endpoint.

  Json model_json(const ServedModel& served) const {
    return {{"id", served.name},
            {"object", "model"},
            {"created", started},
            {"owned_by", "tutti"},
            {"parent", served.parent.empty() ? Json() : Json(served.parent)},
            {"max_model_len", served.engine->longest_text()},
            {"chat", served.model->chat_template != nullptr && served.model->tokenizer != nullptr}};
  }

  HttpResponse list_models(const HttpRequest&) {
    Json list = Json::array();
    for (const ServedModel& served : options.models) list.push_back(model_json(served));
    return json_response({{"object", "list"}, {"data", std::move(list)}});
  }

  HttpResponse show_model(const HttpRequest& request) {
    return json_response(
        model_json(model_of(request.path.substr(std::string_view(kModelPath).size()))));
  }

  HttpResponse health(const HttpRequest&) {
    check_open();
    return json_response({{"status", "ok"}});
  }

  HttpResponse metrics(const HttpRequest&) {
    std::vector<ModelMetrics> models;
    for (const ServedModel& served : options.models) {
      if (!served.parent.empty()) continue;  // counted with its model
      models.push_back({served.name, served.model->resident_bytes(), served.engine->longest_text(),
                        served.engine->stats()});
    }
    HttpMetrics http{server.open_connections(), server.unanswered_requests(), {}};
    {
      const std::scoped_lock lock(mutex);
      http.answers = answers;
    }
    HttpResponse response;
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = metrics_text(models, http);
    return response;
  }

  HttpResponse page(const HttpRequest&) {
    const std::string nonce = fmt::format("{:016x}{:016x}", random(), random());
    HttpResponse response;
    response.content_type = "text/html; charset=utf-8";
    response.body = chat_page(nonce);
    response.headers = {{"Content-Security-Policy", chat_page_policy(nonce)},
                        {"X-Frame-Options", "DENY"},
                        {"Referrer-Policy", "no-referrer"},
                        {"Cache-Control", "no-store"}};
    return response;
  }

  HttpOptions server_options() {
    HttpOptions http;
    http.address = options.address;
    http.port = options.port;
    http.proxies = options.proxies;
    http.limits.body_bytes = options.body_bytes;
    http.limits.connections = options.connections;
    // Applications ask from one address, with a connection for each of their users.
    http.limits.connections_per_client = options.connections;
    http.limits.workers = 4;
    if (!options.log) options.log = [](const std::string&) {};
    http.log = options.log;
    http.handler = [this](const HttpRequest& request) { return answer(request); };
    http.refusal = [](int status, const std::string& text) {
      return error_response(ApiError(status, text));
    };
    return http;
  }
};

const std::vector<Service::State::RouteEntry>& Service::State::routes() {
  static const std::vector<RouteEntry> all = {
      {"POST", "/v1/completions", &State::completions},
      {"POST", "/v1/chat/completions", &State::chat_completions},
      {"GET", "/v1/models", &State::list_models},
      {"GET", kModelPath, &State::show_model},
      {"POST", "/tokenize", &State::tokenize},
      {"POST", "/detokenize", &State::detokenize},
      {"GET", "/metrics", &State::metrics},
      {"GET", "/health", &State::health, true},
      {"GET", "/", &State::page, true},
  };
  return all;
}

Service::Service(ServiceOptions options) : state_(std::make_unique<State>(std::move(options))) {}

Service::~Service() = default;

int Service::port() const { return state_->server.port(); }

void Service::run() { state_->server.run(); }

void Service::drain(double seconds) {
  state_->draining = true;
  for (const ServedModel& served : state_->options.models) served.engine->drain();
  // The last answers are on their way.
  const double end = monotonic_seconds() + seconds;
  while (state_->server.unanswered_requests() > 0 && monotonic_seconds() < end) {
    sleep_seconds(kDrainPauseSeconds);
  }
}

void Service::stop() { state_->server.stop(); }

}  // namespace tutti::endpoint
