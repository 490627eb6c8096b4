// Benchmark definitions: targets, work per sample and reference convergence, read from
// catalog/benchmarks/*.yaml.
//
// A sample is one training sequence. Reference convergence points (RCPs) are the samples to target
// that the reference implementation needed at one global batch size, run by run; a benchmark has a
// set of them per group of MLPerf rulesets. Published token counts become samples on reading.
// Errors are usage errors that name file, line, key and what would be accepted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::catalog {

enum class Progress { samples, tokens };  // what the logs of a benchmark count

struct ReferencePoint {
  int64_t global_batch_samples = 0;
  double learning_rate = 0;
  std::vector<double> samples_per_run;  // ascending
};

struct ReferenceSet {
  std::vector<std::string> rulesets;  // "4.0.0"
  std::string source;
  std::string date;
  std::vector<ReferencePoint> points;  // ascending batch
};

struct Benchmark {
  std::string name;   // as in submission_benchmark: "gpt3"
  std::string title;  // "GPT-3 175B"
  std::vector<std::string> also_called;
  std::vector<std::string> rulesets;
  std::string metric;
  double target = 0;  // reached when the metric is not above it
  int64_t sequence_tokens = 0;
  int64_t runs_per_result = 0;
  Progress logged_progress = Progress::samples;
  double parameters = 0;
  double flops_per_sample = 0;
  std::string flops_formula;
  int64_t eval_samples = 0;
  int64_t eval_interval_samples = 0;
  // The first floor(eval_skip_per_batch * global batch + eval_skip) evaluations may be skipped.
  double eval_skip_per_batch = 0;
  double eval_skip = 0;
  int64_t allowance_samples = 0;  // see score: a result may beat its limit by this much
  // XXH3 of the only training and validation tokens (PREFIX.bin) there are; empty: not fixed.
  std::string train_corpus_xxh3;
  std::string validation_corpus_xxh3;
  std::string source;
  std::string date;
  std::vector<ReferenceSet> reference_sets;
};

Benchmark parse_benchmark(const std::string& yaml, const std::string& origin);

// All files of CATALOG/benchmarks, by name. Throws not_found when the folder is missing.
std::vector<Benchmark> load_benchmarks(FileSystem& files, const std::string& catalog_folder);

// By name or one of the other names, letter case and blanks aside; nullptr when unknown.
const Benchmark* find_benchmark(const std::vector<Benchmark>& benchmarks, std::string_view name);

// The points for a ruleset; nullptr when there are none.
const ReferenceSet* find_reference_set(const Benchmark& benchmark, std::string_view ruleset);

}  // namespace tutti::catalog
