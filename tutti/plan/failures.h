// What failures cost a run: interruptions arrive at random, at a rate that grows with the number of
// nodes; each throws away the work since the newest checkpoint and takes time to restart from.
//
//   rate      lambda = per_job * min(1, nodes / job_nodes) + nodes * per_node (per day). The first
//             part does not grow with the machine beyond job_nodes: software, preemption, operators
//             (Kokolis et al., arXiv 2410.21680: 7.9 h at 1,024 GPUs measured, where nodes alone
//             would give 28.8 h).
//   spread    per_node differs between clusters: its logarithm has the standard deviation `spread`
//   interval  Daly 2006: t = sqrt(2 w M) [1 + sqrt(w / 2M) / 3 + w / 18M] - w, for w < 2M, else M;
//             M mean time to interruption, w seconds that a save blocks training
//   wall      work / t * M e^(R/M) (e^((t + w)/M) - 1), R seconds to detect and restart
#pragma once

#include <cstdint>

namespace tutti::plan {

// The defaults are those of catalog/failures/published.yaml, fitted as reliability.h says.
struct FailureModel {
  double per_job_per_day = 2.38;
  double job_nodes = 139;  // nodes from which on a job has all of per_job; 0: any job
  double per_node_per_day = 3.9e-3;
  double spread_ratio = 0.367;   // of the logarithm of per_node_per_day
  double restart_seconds = 420;  // detect, restart, load
  double save_seconds = 5;       // that a checkpoint blocks training
  double interval_seconds = 0;   // between checkpoints; 0: Daly's
};

struct FailureForecast {
  double mean_time_to_interruption_seconds = 0;
  double interval_seconds = 0;       // used
  double best_interval_seconds = 0;  // Daly's
  double interruptions = 0;          // expected over the run
  double wall_seconds = 0;           // infinite where it would be a million years
  double goodput = 1;                // work over wall time
  double lost_seconds = 0;           // thrown away, saving and restarting
};

double interruptions_per_second(const FailureModel& model, int64_t nodes);

// Interruptions within so many days: expected, and 90% of clusters and runs: the spread between
// clusters, then chance (Poisson).
struct InterruptionInterval {
  double low = 0;
  double expected = 0;
  double high = 0;
};
InterruptionInterval interruption_interval(const FailureModel& model, int64_t nodes, double days);
double daly_interval_seconds(double save_seconds, double mean_time_seconds);

// `work_seconds` of undisturbed training on `nodes`.
FailureForecast forecast_failures(const FailureModel& model, int64_t nodes, double work_seconds);

// The same by playing `runs` whole runs through with exponential interruptions; quantiles of wall
// time. Deterministic in `seed`.
struct SimulatedFailures {
  double mean_wall_seconds = 0;
  double low_wall_seconds = 0;   // 5%
  double high_wall_seconds = 0;  // 95%
  double mean_interruptions = 0;
  double low_interruptions = 0;
  double high_interruptions = 0;
};
SimulatedFailures simulate_failures(const FailureModel& model, int64_t nodes, double work_seconds,
                                    int runs, uint64_t seed);

}  // namespace tutti::plan
