// The score of a result: minutes to target over its runs.
//
// Rules (mlcommons/training_policies, training_rules.adoc; mlcommons/logging, result_summarizer):
// the time of a run is run_stop - run_start; the score is the mean of the runs without the fastest
// and the slowest. One run that did not converge may be the dropped slowest; two leave no score.
// Faster convergence than the reference multiplies the score (reference.h); the factor stands in
// scaling.json when the result was reviewed, and is computed here otherwise; a file that holds no
// factor from 1 to 10 leaves no score. `raw_minutes` are always as logged, `minutes` always scaled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/mlperf/check_log.h"
#include "tutti/mlperf/folder.h"
#include "tutti/mlperf/reference.h"
#include "tutti/mlperf/round.h"
#include "tutti/mlperf/system_description.h"
#include "tutti/mlperf/timeline.h"

namespace tutti::mlperf {

struct ScoredRun {
  std::string file;
  bool compliant = false;
  bool converged = false;  // compliant, and run_stop says success
  bool counted = false;    // neither dropped nor failed
  double minutes = 0;      // when converged
  double samples_to_target = 0;
  Run run;
  std::optional<Timeline> timeline;  // when converged
  std::vector<Finding> findings;
};

struct Score {
  std::string path;
  std::string ruleset;
  std::string round;  // in the path: "v4.1"; "" when there is none
  std::string benchmark;
  SystemDescription system;
  std::vector<ScoredRun> runs;
  int64_t required_runs = 0;
  int64_t converged_runs = 0;
  std::optional<double> raw_minutes;
  std::optional<double> minutes;
  std::optional<double> samples_to_target;  // olympic mean
  std::optional<double> global_batch_samples;
  ReferenceTest reference;
  double scale = 1;                // what `minutes` is multiplied by
  std::string scale_source;        // "scaling.json", "recomputed", "none"
  std::string scaling_problem;     // why scaling.json cannot be used: then there are no `minutes`
  std::vector<std::string> notes;  // what a reader must know
};

// Checks every log of the folder and scores it. `benchmarks` is the catalog's.
Score score_result(FileSystem& files, const ResultFolder& folder, const Ruleset& ruleset,
                   const std::vector<catalog::Benchmark>& benchmarks);

// Adds to the notes by which rules it was scored, where that is not what the path says. `asked`:
// the user named them.
void note_ruleset(bool asked, Score& score);

// It has minutes, of as many runs as the rules want or more.
bool official(const Score& score);

Json to_json(const Score& score);

// The newest ruleset that has the benchmark; "" when none does.
std::string newest_ruleset(const catalog::Benchmark& benchmark);

}  // namespace tutti::mlperf
