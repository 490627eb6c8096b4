// Metrics of a training run for Prometheus: an HTTP server in this process answers GET /metrics in
// the text format 0.0.4. Names have base units:
//
//   tutti_info{run, name, version, precision, cpu, host} 1
//   tutti_step, tutti_planned_steps                        gauges
//   tutti_tokens_total, tutti_skipped_steps_total          counters, of the whole run
//   tutti_loss, tutti_validation_loss, tutti_target_loss   gauges, nats per token
//   tutti_learning_rate, tutti_gradient_norm, tutti_mfu_ratio   gauges
//   tutti_step_seconds, tutti_evaluation_seconds           histograms
//   tutti_data_wait_seconds_total                          counter
//   tutti_checkpoint_stall_seconds, tutti_checkpoint_write_seconds   histograms
//   tutti_checkpoint_failures_total                        counter
//   tutti_memory_bytes{kind}                               gauge; kind resident, weights, ...
//   tutti_gpu_power_watts, tutti_gpu_temperature_celsius, tutti_gpu_memory_used_bytes {gpu}  gauges
//   tutti_gpu_clock_hertz{gpu, clock}                      gauge; clock sm, memory
//   tutti_gpu_energy_joules_total{gpu}                     counter, since the run began to look
//   tutti_gpu_throttled{gpu, reason}                       gauge, 1 while it is
//
// A gauge appears with its first value. tutti_tokens_total of a resumed run continues where it was.
#pragma once

#include <memory>
#include <string>

#include "tutti/telemetry/sink.h"

namespace tutti::telemetry {

class PrometheusSink final : public Sink {
 public:
  // Listens on `address` (numeric, such as "127.0.0.1", "0.0.0.0" or "::1") until destroyed. Port 0
  // takes a free one. Throws usage for an address that is not an address of this machine, io when
  // the port is taken, permission when it is privileged.
  PrometheusSink(const std::string& address, int port);
  ~PrometheusSink() override;
  void write(const Event& event) override;
  int port() const;

 private:
  struct Metrics;
  std::unique_ptr<Metrics> metrics_;
};

}  // namespace tutti::telemetry
