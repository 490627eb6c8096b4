// The endpoint's HTTP service over its models' engines: OpenAI's routes, vLLM's /tokenize and
// /detokenize, /health, /metrics for Prometheus and a chat page. docs/endpoint.md describes it.
//
// Handlers parse, tokenize and submit; answers then come from the engines' threads. Where keys are
// asked for, /health and the page are open, all else needs one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/http_server.h"
#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/key_meter.h"
#include "tutti/endpoint/model.h"

namespace tutti::endpoint {

// A model, or a model with one of its adapters; an adapter follows its model in the list.
struct ServedModel {
  std::string name;  // as requests call it
  const LoadedModel* model = nullptr;
  Engine* engine = nullptr;
  std::string adapter = {};  // GenerationRequest::adapter
  std::string parent = {};   // of an adapter: the name of its model
};

struct ServiceOptions {
  std::string address = "127.0.0.1";
  int port = 8000;                  // 0: a free one
  std::vector<ServedModel> models;  // at least one; all outlive the service
  // The id of an API key; absent: it is not known here. Without it everybody may ask.
  std::function<std::optional<std::string>(const std::string& key)> identify;
  KeyMeter* meter = nullptr;  // of requests with keys; outlives the service; null: none
  // On loopback addresses requests must name one of these or a loopback name as their Host: pages
  // of others, whose names can be made to lead here, are kept out.
  std::vector<std::string> hosts;
  std::vector<std::string> proxies;
  size_t body_bytes = 4 << 20;
  size_t connections = 4096;
  std::function<void(const std::string&)> log;
};

class Service {
 public:
  // Listens. Throws as HttpServer.
  explicit Service(ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  int port() const;
  void run();  // returns after stop()
  // From any thread. drain: new requests get 503; returns when all others have their answer, or
  // after `seconds` without one.
  void drain(double seconds);
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti::endpoint
