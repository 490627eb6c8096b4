// The cost of failures: interruptions arrive at random, at a rate that grows with the number of
// nodes; each loses the work since the newest checkpoint and takes time to restart.
//
//   rate      lambda = per_job * min(1, nodes / job_nodes) + nodes * per_node (per day). The first
//             part does not grow with the machine beyond job_nodes: software, preemption, operators
//             (Kokolis et al., arXiv 2410.21680: 7.9 h at 1,024 GPUs measured, where nodes alone
//             would give 28.8 h).
//   spread    per_node differs between clusters: its logarithm has the standard deviation `spread`
//   interval  Daly 2006: t = sqrt(2 w M) [1 + sqrt(w / 2M) / 3 + w / 18M] - w, for w < 2M, else M;
//             M mean time to interruption, w seconds that a save blocks training
//   wall      the sum over pieces of work of M / G (e^((t + w)/M) - 1), where the last piece is the
//             remainder and is not saved: so a run of minutes pays for the interruptions that it
//             can have, and for no save. 1/G: restarts, themselves interrupted; G = e^(-R/M), R
//             seconds to detect and restart. For work of many pieces this is Daly's work / t * M
//             e^(R/M) (e^((t + w)/M) - 1)
//
// Partial restarts: in a share p of the interruptions all processes survive except the failed ones,
// which a standby replaces (Wang et al., "ByteRobust", arXiv 2509.16293, section 5; NVIDIA
// Resiliency Extension, in-process restart), in R_p seconds: G = (1 - p) e^(-R/M) + p e^(-R_p/M).
// This follows from M / G = M + D, where D, the expected down time, is M q / (1 - q), q the
// probability of an interruption within a restart.
//
// Peer copies (in-memory checkpoints): every t seconds, blocking for w, a node's state is copied
// into the memory of other nodes; a share c of the interruptions leaves a complete copy to restart
// from (Wang et al., "Gemini", SOSP 2023). The others go back to the newest checkpoint in storage,
// which is written every T seconds, blocking for W, and lose T/2 of wall time more (Vaidya, "A Case
// for Two-Level Distributed Recovery Schemes", SIGMETRICS 1995):
//   wall = (wall of t, w + saves * W) / (1 - (1 - c) / M * min(T, wall of t, w) / 2)
// with Daly's t for w and M, and Daly's T for W and M / (1 - c).
// Runs that cannot be resumed (benchmarks on the clock): no saves, and an interrupted run starts
// from its beginning: M (e^(work / M) - 1) on the clock for every one that ends, which is less than
// work over the probability e^(-work / M) that a run does. Time before a run starts does not count.
#pragma once

#include <cstdint>

namespace tutti::plan {

// The defaults are those of catalog/failures/published.yaml, fitted as described in reliability.h.
struct FailureModel {
  double per_job_per_day = 2.38;
  double job_nodes = 139;  // nodes from which on a job has all of per_job; 0: any job
  double per_node_per_day = 3.9e-3;
  double spread_ratio = 0.367;   // of the logarithm of per_node_per_day
  double restart_seconds = 420;  // detect, restart, load
  double save_seconds = 5;       // during which a checkpoint blocks training
  double interval_seconds = 0;   // between checkpoints in storage; 0: Daly's
  double partial_share = 0;      // of interruptions that need only a partial restart
  double partial_restart_seconds = 60;
  double memory_share = 0;         // of interruptions that peer copies survive; 0: no peer copies
  double memory_save_seconds = 1;  // during which a peer copy blocks training
  bool resumes = true;             // else every interruption loses the whole run
};

struct FailureForecast {
  double mean_time_to_interruption_seconds = 0;
  double interval_seconds = 0;         // used, between checkpoints in storage; infinite: none
  double best_interval_seconds = 0;    // Daly's
  double memory_interval_seconds = 0;  // between peer copies; 0: none
  double interruptions = 0;            // expected over the run
  double wall_seconds = 0;             // infinite if it would exceed a million years
  double goodput = 1;                  // work over wall time
  double lost_seconds = 0;             // lost work, saves and restarts
};

// The model of a run that cannot be resumed, with the same interruptions.
FailureModel without_resuming(FailureModel model);

double interruptions_per_second(const FailureModel& model, int64_t nodes);

// Interruptions within `days`: expected, and a 90% interval over clusters and runs: the spread
// between clusters, then chance (Poisson).
struct InterruptionInterval {
  double low = 0;
  double expected = 0;
  double high = 0;
};
InterruptionInterval interruption_interval(const FailureModel& model, int64_t nodes, double days);
double daly_interval_seconds(double save_seconds, double mean_time_seconds);

// Forecast for `work_seconds` of undisturbed training on `nodes`.
FailureForecast forecast_failures(const FailureModel& model, int64_t nodes, double work_seconds);

// The same by simulating `runs` whole runs with exponential interruptions; quantiles of wall time.
// Deterministic in `seed`.
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
