// `tutti endpoint`: models behind an HTTP API.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/client_address.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/cli/endpoint/adapter_sources.h"
#include "tutti/cli/endpoint/api_keys.h"
#include "tutti/cli/endpoint/live_keys.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/audit/digest.h"
#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/model.h"
#include "tutti/endpoint/service.h"
#include "tutti/object/file_system.h"

namespace tutti::cli {
namespace {

constexpr double kTendSeconds = 1;    // between two looks at the API keys and their use
constexpr double kFlushSeconds = 10;  // for answers that are finished and not read yet

struct EndpointArguments {
  std::vector<std::string> models;    // [NAME=]PATH
  std::vector<std::string> adapters;  // [MODEL:]NAME=PATH
  std::string address = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> hosts;
  std::vector<std::string> proxies;
  bool plain_http = false;
  std::string weights = "as_stored";
  std::string cache;
  std::string body = "4MiB";
  endpoint::EngineOptions engine;
  std::string key_file;
  std::string new_key;
  KeyLimitOptions new_limits;
  std::string use_file;
  TokenPriceOptions prices;
  std::string manifest_sha256;
  std::string ready_file;
  bool json = false;
};

// One model with its engine, which uses it.
struct LoadedEngine {
  std::string name;
  std::unique_ptr<endpoint::LoadedModel> model;
  std::unique_ptr<endpoint::Engine> engine;
};

// A socket for each connection: as many as the system allows.
void raise_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// By the SHA-256 of its manifest, which holds the checksums of the rest.
void check_manifest(const std::string& path, const std::string& wanted) {
  const std::string manifest = join_path(path, checkpoint::kManifestName);
  const std::string found = control::sha256_hex(read_file(object::file_system(), manifest));
  if (found == wanted) return;
  fail(ErrorKind::usage,
       "--manifest-sha256 {}: '{}' has {}: it is another checkpoint than the one that was meant",
       wanted, manifest, found);
}

std::vector<LoadedEngine> load_engines(const EndpointArguments& arguments) {
  endpoint::EngineOptions options = arguments.engine;
  if (!arguments.cache.empty()) options.cache_bytes = parse_bytes(arguments.cache, "--cache");
  const endpoint::WeightType weights = endpoint::parse_weight_type(arguments.weights);
  std::vector<AdapterSource> adapters;
  adapters.reserve(arguments.adapters.size());
  for (const std::string& text : arguments.adapters) {
    adapters.push_back(split_adapter(text, arguments.models.size()));
  }
  std::vector<LoadedEngine> engines;
  for (const std::string& text : arguments.models) {
    throw_if_interrupted();
    const auto [name, path] = split_model(text);
    const double begin = monotonic_seconds();
    if (!arguments.manifest_sha256.empty()) check_manifest(path, arguments.manifest_sha256);
    LoadedEngine loaded;
    loaded.model = endpoint::load_model(object::file_system(), path, weights, options.threads);
    loaded.name = name.empty() ? loaded.model->name : name;
    for (const LoadedEngine& other : engines) {
      if (other.name != loaded.name) continue;
      fail(ErrorKind::usage, "two models are called '{}'; name one of them: NAME={}", loaded.name,
           path);
    }
    add_adapters(adapters, loaded.name, *loaded.model);
    loaded.engine = std::make_unique<endpoint::Engine>(*loaded.model, options);
    for (const std::string& note : loaded.model->notes) {
      print_message(fmt::format("tutti: {}: {}\n", loaded.name, note));
    }
    const endpoint::EngineStats stats = loaded.engine->stats();
    print_message(fmt::format(
        "tutti: {}: {} of weights, cache of {}, texts of up to {} tokens, loaded in {}\n",
        loaded.name, format_bytes(static_cast<double>(loaded.model->resident_bytes())),
        format_bytes(static_cast<double>(stats.cache_bytes)), loaded.engine->longest_text(),
        format_seconds(monotonic_seconds() - begin)));
    for (const endpoint::LoadedAdapter& adapter : loaded.model->adapters) {
      print_message(fmt::format("tutti: {}: adapter of {}, {}\n", adapter.name, loaded.name,
                                format_bytes(static_cast<double>(adapter.weights->bytes()))));
    }
    engines.push_back(std::move(loaded));
  }
  std::vector<std::string> names;
  names.reserve(engines.size());
  for (const LoadedEngine& one : engines) names.push_back(one.name);
  check_names(adapters, names);
  return engines;
}

endpoint::ServiceOptions service_options(const EndpointArguments& arguments,
                                         const std::vector<LoadedEngine>& engines) {
  endpoint::ServiceOptions options;
  options.address = arguments.address;
  options.port = arguments.port;
  options.hosts = arguments.hosts;
  for (const std::string& proxy : arguments.proxies) {
    options.proxies.push_back(plain_address(proxy));
    if (options.proxies.back().empty()) {
      fail(ErrorKind::usage, "--proxy {}: no address; write one such as 127.0.0.1 or ::1", proxy);
    }
  }
  options.body_bytes = static_cast<size_t>(parse_bytes(arguments.body, "--max-body"));
  for (const LoadedEngine& one : engines) {
    options.models.push_back({one.name, one.model.get(), one.engine.get()});
    for (const endpoint::LoadedAdapter& adapter : one.model->adapters) {
      options.models.push_back(
          {adapter.name, one.model.get(), one.engine.get(), adapter.name, one.name});
    }
  }
  options.log = [](const std::string& text) { print_message("tutti: " + text + "\n"); };
  return options;
}

// What to try first.
std::string curl_example(const std::string& url, const LoadedEngine& first, bool needs_key) {
  const bool is_chat = first.model->chat_template != nullptr && first.model->tokenizer != nullptr;
  const std::string header = needs_key ? " -H \"Authorization: Bearer $KEY\"" : "";
  if (is_chat) {
    return fmt::format(
        "curl {}v1/chat/completions{} -d '{{\"model\": \"{}\", \"messages\": [{{\"role\": "
        "\"user\", \"content\": \"Hello\"}}]}}'",
        url, header, first.name);
  }
  return fmt::format(
      "curl {}v1/completions{} -d '{{\"model\": \"{}\", \"prompt\": \"Once\", \"max_tokens\": "
      "64}}'",
      url, header, first.name);
}

std::string url_of(const EndpointArguments& arguments, int port) {
  const bool is_v6 = arguments.address.find(':') != std::string::npos;
  return fmt::format("http://{}:{}/", is_v6 ? "[" + arguments.address + "]" : arguments.address,
                     port);
}

void print_start(const EndpointArguments& arguments, const std::vector<LoadedEngine>& engines,
                 int port, bool needs_key) {
  const std::string url = url_of(arguments, port);
  if (arguments.json) {
    Json models = Json::array();
    for (const LoadedEngine& one : engines) {
      Json adapters = Json::array();
      for (const endpoint::LoadedAdapter& adapter : one.model->adapters) {
        adapters.push_back({{"name", adapter.name}, {"path", adapter.path}});
      }
      models.push_back({{"name", one.name},
                        {"adapters", std::move(adapters)},
                        {"path", one.model->path},
                        {"step", one.model->step},
                        {"weight_bytes", one.model->resident_bytes()},
                        {"cache_bytes", one.engine->stats().cache_bytes},
                        {"context", one.engine->longest_text()},
                        {"chat", one.model->chat_template != nullptr}});
    }
    print_json({{"url", url}, {"port", port}, {"models", std::move(models)}});
  } else {
    print_text(fmt::format("{}  (a chat page; Ctrl-C ends it)\n\n  {}\n", url,
                           curl_example(url, engines.front(), needs_key)));
  }
  flush_output();
}

// Null: none are asked for.
std::unique_ptr<LiveKeys> open_keys(const EndpointArguments& arguments) {
  if (arguments.key_file.empty()) {
    if (arguments.use_file.empty()) return nullptr;
    fail(ErrorKind::usage, "--usage-file: what is recorded is by API key; give --api-key-file too");
  }
  auto keys = std::make_unique<LiveKeys>(
      posix_file_system(),
      KeySettings{arguments.key_file, arguments.use_file, parse_token_prices(arguments.prices)});
  if (keys->size() == 0) {
    print_message(
        fmt::format("tutti: {}: no API key yet, which admits no request\n", arguments.key_file));
  }
  return keys;
}

int run_endpoint(const EndpointArguments& arguments) {
  FileSystem& files = posix_file_system();
  if (!arguments.new_key.empty()) {
    if (arguments.key_file.empty()) {
      fail(ErrorKind::usage, "--add-api-key needs --api-key-file FILE, where it is added");
    }
    const std::string key = add_api_key(files, arguments.key_file,
                                        parse_key_limits(arguments.new_key, arguments.new_limits));
    if (arguments.json) {
      print_json({{"name", arguments.new_key}, {"key", key}, {"file", arguments.key_file}});
    } else {
      print_text(key + "\n");
    }
    return exit_ok;
  }
  if (arguments.models.empty()) {
    fail(ErrorKind::usage, "MODEL is missing: a run folder, a Hugging Face folder or a GGUF file");
  }
  if (!arguments.manifest_sha256.empty() && arguments.models.size() > 1) {
    fail(ErrorKind::usage, "--manifest-sha256 is of one checkpoint, and {} models are named",
         arguments.models.size());
  }
  if (!is_loopback(arguments.address) && !arguments.plain_http) {
    fail(ErrorKind::usage,
         "--address {}: keys and texts would cross the network unencrypted; put a proxy with TLS "
         "before {}, or say --plain-http",
         arguments.address, "127.0.0.1");
  }
  watch_signals();
  raise_open_files();
  const std::unique_ptr<LiveKeys> keys = open_keys(arguments);
  const std::vector<LoadedEngine> engines = load_engines(arguments);
  endpoint::ServiceOptions options = service_options(arguments, engines);
  if (keys != nullptr) {
    options.identify = [&keys](const std::string& key) { return keys->identify(key); };
    options.meter = &keys->meter();
  }
  endpoint::Service service(std::move(options));
  if (!arguments.ready_file.empty()) {
    write_file_atomic(files, arguments.ready_file,
                      dump_json({{"url", url_of(arguments, service.port())}}) + "\n");
  }
  print_start(arguments, engines, service.port(), keys != nullptr);
  std::thread waits([&] {
    double next = monotonic_seconds() + kTendSeconds;
    while (stop_signal() == 0) {
      sleep_seconds(0.05);
      if (keys == nullptr || monotonic_seconds() < next) continue;
      keys->tend();
      next = monotonic_seconds() + kTendSeconds;
    }
    print_message(
        "tutti: new requests are refused; those that run are finished (a second signal "
        "ends at once)\n");
    service.drain(kFlushSeconds);
    if (keys != nullptr) keys->tend();
    service.stop();
  });
  service.run();
  waits.join();
  return exit_ok;
}

void add_engine_options(CLI::App& command, EndpointArguments& arguments) {
  endpoint::EngineOptions& engine = arguments.engine;
  command
      .add_option("--weights", arguments.weights,
                  "Type of the weights in memory: " + join(endpoint::weight_type_names(), ", "))
      ->capture_default_str()
      ->check(CLI::IsMember(endpoint::weight_type_names()));
  command
      .add_option("--cache", arguments.cache,
                  "Memory for keys and values of each model, such as 2GiB; default: half of what "
                  "is free, at most what the sequences can use")
      ->type_name("BYTES");
  command.add_option("--max-sequences", engine.max_sequences, "Requests that run side by side")
      ->capture_default_str()
      ->check(at_least(1));
  command
      .add_option("--max-waiting", engine.max_waiting,
                  "Requests that wait; beyond it the answer is 429")
      ->capture_default_str()
      ->check(at_least(0));
  command
      .add_option("--prefill-tokens", engine.prefill_tokens,
                  "Tokens of prompts that are computed in a step, beside those of answers")
      ->capture_default_str()
      ->check(at_least(1));
  command.add_flag("--batch-invariant", engine.batch_invariant,
                   "The same bits whatever else runs, at the price of slower prompts");
  command.add_option("--threads", engine.threads, "Threads of each model; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
}

void add_network_options(CLI::App& command, EndpointArguments& arguments) {
  command.add_option("--address", arguments.address, "Address to listen on")->capture_default_str();
  command.add_option("--port", arguments.port, "Port; 0: any free one")
      ->capture_default_str()
      ->check(between(0, 65535));
  command
      .add_option("--host", arguments.hosts,
                  "Host name that clients use, besides the address and localhost")
      ->type_name("NAME");
  command.add_option("--proxy", arguments.proxies, "Address of a trusted proxy (X-Forwarded-For)")
      ->type_name("ADDRESS");
  command.add_flag("--plain-http", arguments.plain_http,
                   "Allow unencrypted HTTP on addresses other than loopback");
  command.add_option("--max-body", arguments.body, "Largest request; beyond it the answer is 413")
      ->capture_default_str()
      ->type_name("BYTES");
  command
      .add_option("--api-key-file", arguments.key_file,
                  "File of the hashes of API keys; requests then need one")
      ->type_name("FILE");
  command
      .add_option("--add-api-key", arguments.new_key,
                  "Make a key, add its hash to --api-key-file, print the key, and end")
      ->type_name("NAME");
  add_key_limit_options(command, arguments.new_limits);
  command
      .add_option("--usage-file", arguments.use_file,
                  "File to add what API keys use to, a line of JSON for each request")
      ->type_name("FILE");
  add_token_price_options(command, arguments.prices);
}

}  // namespace

void add_endpoint(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<EndpointArguments>();
  CLI::App* command =
      app.add_subcommand("endpoint", "Serve models by an HTTP API like OpenAI's, with a chat page");
  command
      ->add_option("MODEL", arguments->models,
                   "Run folder, Hugging Face folder or GGUF file; NAME=PATH names it")
      ->type_name("[NAME=]PATH");
  command
      ->add_option("--adapter", arguments->adapters,
                   "Adapters (LoRA) that requests may name as their model: a run that trained them "
                   "or a folder of PEFT; with several models MODEL:NAME=PATH. May be repeated")
      ->type_name("NAME=PATH")
      ->allow_extra_args(false);
  command
      ->add_option("--manifest-sha256", arguments->manifest_sha256,
                   "Serve the checkpoint PATH only if its manifest.json has this SHA-256, as "
                   "approvals name it")
      ->type_name("HEX");
  command
      ->add_option("--ready-file", arguments->ready_file,
                   "Write a line of JSON with the URL to this file once it listens")
      ->type_name("FILE");
  add_network_options(*command, *arguments);
  add_engine_options(*command, *arguments);
  add_json_option(*command, arguments->json);
  command->footer(
      "Routes: /v1/completions, /v1/chat/completions, /v1/models, /tokenize, /detokenize, "
      "/health,\n"
      "/metrics, and a chat page at /. SIGTERM and Ctrl-C finish what runs.\n\n"
      "Examples:\n"
      "  tutti endpoint runs/mine\n"
      "  tutti endpoint runs/base --adapter support=runs/tuned --adapter poems=poems-peft\n"
      "  tutti endpoint small=runs/mine large=Llama-3.2-1B --weights int8 --port 8000\n"
      "  tutti endpoint --api-key-file keys --add-api-key ann --key-tokens 1M\n"
      "  tutti endpoint runs/mine --api-key-file keys --usage-file usage.jsonl");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_endpoint(*arguments); }; });
}

}  // namespace tutti::cli
