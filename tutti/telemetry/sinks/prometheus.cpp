#include "tutti/telemetry/sinks/prometheus.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/http_server.h"

namespace tutti::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Histogram;

[[noreturn]] void fail_listening(const std::string& address, int port, int cause) {
  ErrorKind kind = ErrorKind::io;
  const char* remedy = "choose another telemetry.metrics_port, or 0 for none";
  if (cause == EADDRNOTAVAIL) {
    kind = ErrorKind::usage;
    remedy = "set telemetry.metrics_address to an address of this machine, such as 127.0.0.1";
  }
  if (cause == EACCES) kind = ErrorKind::permission;
  fail(kind, "telemetry.metrics_port: cannot listen on {} port {}: {}; {}", address, port,
       std::strerror(cause), remedy);
}

// In the words of the recipe's keys, so this tries first.
void check_can_listen(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    fail(ErrorKind::usage,
         "telemetry.metrics_address: '{}' is not a numeric address; write one such as 127.0.0.1, "
         "0.0.0.0 (every interface) and ::1",
         address);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const int fd = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int cause = fd < 0 ? errno : 0;
  if (fd >= 0) {
    const int on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (::bind(fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd, 1) != 0) cause = errno;
    ::close(fd);
  }
  if (cause != 0) fail_listening(address, port, cause);
}

// Scrapes are seconds apart and must not compete with training: little is enough.
std::unique_ptr<HttpServer> listen_on(const std::string& address, int port,
                                      const std::shared_ptr<prometheus::Registry>& registry) {
  check_can_listen(address, port);
  HttpOptions options;
  options.address = address;
  options.port = port;
  options.limits.workers = 1;
  options.limits.connections = 64;
  options.limits.connections_per_client = 32;
  options.limits.body_bytes = 0;
  options.handler = [registry](const HttpRequest& request) {
    HttpResponse response;
    if (request.method != "GET" || request.path != "/metrics") {
      response.status = 404;
      response.body = "GET /metrics is all there is\n";
      return response;
    }
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = prometheus::TextSerializer().Serialize(registry->Collect());
    return response;
  };
  try {
    return std::make_unique<HttpServer>(std::move(options));
  } catch (const Error&) {
    fail_listening(address, port, EADDRINUSE);  // someone took it since
  }
}

const Histogram::BucketBoundaries kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                              0.5,   1,      2.5,   5,    10,    25,   50,  100};

}  // namespace

struct PrometheusSink::Metrics {
  Metrics(const std::string& address, int port)
      : server(listen_on(address, port, registry)), serving([this] { server->run(); }) {}
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics() {
    server->stop();
    serving.join();
  }

  // A gauge exists from its first value on: 0 would be a wrong one.
  void set(const char* name, const char* help, double value,
           const prometheus::Labels& labels = {}) const {
    // Registering again and adding the same labels again give what is there.
    prometheus::BuildGauge().Name(name).Help(help).Register(*registry).Add(labels).Set(value);
  }
  Counter& counter(const char* name, const char* help) const {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry).Add({});
  }
  Histogram& histogram(const char* name, const char* help) const {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry).Add({}, kSeconds);
  }

  void take(const RunStarted& event);
  void take(const MachineDescribed& event);
  void take(const MemoryMeasured& event) const;
  void take(const StepDone& event);
  void take(const GpuMeasured& event);
  void take(const EvaluationDone& event);
  void take(const CheckpointSaved& event);
  void take(const CheckpointFailed& /*event*/) { checkpoint_failures.Increment(); }
  template <typename Other>
  void take(const Other& /*event*/) const {}

  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  Counter& tokens = counter("tutti_tokens_total", "Tokens trained on, of the whole run.");
  Counter& skipped = counter("tutti_skipped_steps_total", "Steps skipped as non-finite.");
  Counter& data_wait =
      counter("tutti_data_wait_seconds_total", "Time that training waited for data.");
  Counter& checkpoint_failures =
      counter("tutti_checkpoint_failures_total", "Checkpoints that could not be written.");
  Histogram& step_seconds = histogram("tutti_step_seconds", "Duration of training steps.");
  Histogram& evaluation_seconds = histogram("tutti_evaluation_seconds", "Duration of evaluations.");
  Histogram& stall_seconds =
      histogram("tutti_checkpoint_stall_seconds", "Time that training waited for a checkpoint.");
  Histogram& write_seconds =
      histogram("tutti_checkpoint_write_seconds", "Time until a checkpoint was durable.");
  std::map<std::string, double> gpu_joules;                 // as last reported
  std::set<std::pair<std::string, std::string>> throttled;  // GPUs and reasons that ever were
  RunStarted run;
  std::unique_ptr<HttpServer> server;  // last: they serve what is above
  std::thread serving;
};

void PrometheusSink::Metrics::take(const RunStarted& event) {
  run = event;
  set("tutti_planned_steps", "Steps that the run is planned to take.",
      static_cast<double>(event.steps));
  if (event.target_loss) {
    set("tutti_target_loss", "Validation loss at which the run ends.", *event.target_loss);
  }
}

void PrometheusSink::Metrics::take(const MachineDescribed& event) {
  set("tutti_info", "The run and where it runs.", 1,
      {{"run", run.run},
       {"name", run.name},
       {"version", event.version},
       {"precision", event.precision},
       {"cpu", event.cpu},
       {"host", event.host}});
}

void PrometheusSink::Metrics::take(const MemoryMeasured& event) const {
  const char* name = "tutti_memory_bytes";
  const char* help = "Memory by kind of arena; resident is all of the process.";
  set(name, help, static_cast<double>(event.resident_bytes), {{"kind", "resident"}});
  for (const MemoryByKind& part : event.kinds) {
    set(name, help, static_cast<double>(part.bytes), {{"kind", part.kind}});
  }
}

void PrometheusSink::Metrics::take(const StepDone& event) {
  set("tutti_step", "The last step done.", static_cast<double>(event.step));
  set("tutti_loss", "Training loss of the last step, nats per token.", event.loss);
  set("tutti_gradient_norm", "Gradient norm of the last step, before clipping.",
      event.gradient_norm);
  set("tutti_learning_rate", "Learning rate of the last step.", event.learning_rate);
  if (event.mfu > 0) {
    set("tutti_mfu_ratio", "Model FLOPs of the last step per measured matrix-product peak.",
        event.mfu);
  }
  if (event.parts) {
    set("tutti_cross_entropy", "Cross-entropy of the last step, a part of its loss.",
        event.parts->cross_entropy);
    set("tutti_teacher_divergence", "Divergence from the teacher, the other part, with T^2.",
        event.parts->divergence);
  }
  if (event.routing) {
    set("tutti_routing_balance_loss", "Balance loss of the routers, before its weight.",
        event.routing->balance_loss);
    set("tutti_routing_load_ratio", "Choices of the busiest expert per mean of its layer.",
        event.routing->load_max_over_mean);
    set("tutti_routing_dropped_ratio", "Token copies beyond the experts' capacity.",
        event.routing->dropped_share);
  }
  const double more = static_cast<double>(event.tokens) - tokens.Value();
  if (more > 0) tokens.Increment(more);
  if (event.skipped) skipped.Increment();
  if (event.data_wait_seconds > 0) data_wait.Increment(event.data_wait_seconds);
  step_seconds.Observe(event.step_seconds);
}

void PrometheusSink::Metrics::take(const GpuMeasured& event) {
  const auto gauge = [&](const char* name, const char* help, const std::optional<double>& value,
                         prometheus::Labels labels = {}) {
    if (!value) return;
    labels["gpu"] = event.gpu;
    set(name, help, *value, labels);
  };
  gauge("tutti_gpu_power_watts", "Power that the GPU draws.", event.power_watts);
  gauge("tutti_gpu_temperature_celsius", "Temperature of the GPU.", event.temperature_celsius);
  gauge("tutti_gpu_memory_used_bytes", "Memory of the GPU that any process uses.",
        event.memory_used_bytes);
  const char* clocks = "Clocks of the GPU.";
  gauge("tutti_gpu_clock_hertz", clocks, event.clock_hertz, {{"clock", "sm"}});
  gauge("tutti_gpu_clock_hertz", clocks, event.memory_clock_hertz, {{"clock", "memory"}});
  if (event.energy_joules) {
    Counter& counter = prometheus::BuildCounter()
                           .Name("tutti_gpu_energy_joules_total")
                           .Help("Energy of the GPU since the run began to look.")
                           .Register(*registry)
                           .Add({{"gpu", event.gpu}});
    const auto [before, first] = gpu_joules.emplace(event.gpu, *event.energy_joules);
    // Below the last one after a reset of the driver.
    if (*event.energy_joules > before->second) {
      counter.Increment(*event.energy_joules - before->second);
    }
    before->second = *event.energy_joules;
  }
  for (const std::string& reason : event.throttled) throttled.emplace(event.gpu, reason);
  for (const auto& [gpu, reason] : throttled) {
    if (gpu != event.gpu) continue;
    const bool now =
        std::find(event.throttled.begin(), event.throttled.end(), reason) != event.throttled.end();
    set("tutti_gpu_throttled", "1 while the GPU's clocks are lowered for the reason.", now ? 1 : 0,
        {{"gpu", gpu}, {"reason", reason}});
  }
}

void PrometheusSink::Metrics::take(const EvaluationDone& event) {
  set("tutti_validation_loss", "Loss of the last evaluation, nats per token.", event.loss);
  evaluation_seconds.Observe(event.seconds);
}

void PrometheusSink::Metrics::take(const CheckpointSaved& event) {
  stall_seconds.Observe(event.stall_seconds);
  write_seconds.Observe(event.write_seconds);
}

PrometheusSink::PrometheusSink(const std::string& address, int port)
    : metrics_(std::make_unique<Metrics>(address, port)) {}

PrometheusSink::~PrometheusSink() = default;

void PrometheusSink::write(const Event& event) {
  std::visit([this](const auto& body) { metrics_->take(body); }, event.body);
}

int PrometheusSink::port() const { return metrics_->server->port(); }

}  // namespace tutti::telemetry
