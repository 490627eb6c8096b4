#include "tutti/catalog/benchmarks.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/catalog/yaml_list.h"

namespace tutti::catalog {
namespace {

constexpr int64_t kMost = INT64_MAX;

// The runs, under tokens_per_run or samples_per_run.
std::vector<double> read_runs(spec::YamlMap& map, int64_t sequence_tokens) {
  const bool tokens = map.has("tokens_per_run");
  const std::string key = tokens ? "tokens_per_run" : "samples_per_run";
  std::vector<double> runs = read_numbers(map, key);
  if (runs.size() < 3) map.fail_key(key, "give the samples of three runs or more");
  for (double& run : runs) {
    if (run <= 0) map.fail_key(key, "runs take more than zero samples");
    if (tokens) run /= static_cast<double>(sequence_tokens);
  }
  std::sort(runs.begin(), runs.end());
  return runs;
}

ReferenceSet read_set(spec::YamlMap map, const std::string& origin, int64_t sequence_tokens) {
  ReferenceSet set;
  set.rulesets = read_words(map, "rulesets");
  require(map, "source");
  require(map, "date");
  map.read_text("source", set.source);
  map.read_text("date", set.date);
  for (spec::YamlMap& entry : read_maps(map, "points", origin)) {
    ReferencePoint point;
    require(entry, "global_batch_samples");
    entry.read_count("global_batch_samples", point.global_batch_samples, 1, kMost);
    entry.read_real("learning_rate", point.learning_rate);
    point.samples_per_run = read_runs(entry, sequence_tokens);
    entry.finish();
    set.points.push_back(std::move(point));
  }
  map.finish();
  std::sort(set.points.begin(), set.points.end(), [](const auto& a, const auto& b) {
    return a.global_batch_samples < b.global_batch_samples;
  });
  return set;
}

}  // namespace

Benchmark parse_benchmark(const std::string& yaml, const std::string& origin) {
  spec::YamlMap map(spec::parse_yaml(yaml, origin), "", origin);
  Benchmark benchmark;
  for (const char* key : {"name", "target", "sequence_tokens", "runs_per_result", "parameters",
                          "flops_per_sample", "source", "date"}) {
    require(map, key);
  }
  map.read_text("name", benchmark.name);
  map.read_text("title", benchmark.title);
  benchmark.also_called = read_words(map, "also_called");
  benchmark.rulesets = read_words(map, "rulesets");
  map.read_text("metric", benchmark.metric);
  map.read_real("target", benchmark.target);
  map.read_count("sequence_tokens", benchmark.sequence_tokens, 1, kMost);
  map.read_count("runs_per_result", benchmark.runs_per_result, 1, kMost);
  map.read_choice<Progress>("logged_progress", benchmark.logged_progress,
                            {{"samples", Progress::samples}, {"tokens", Progress::tokens}});
  map.read_real("parameters", benchmark.parameters);
  map.read_real("flops_per_sample", benchmark.flops_per_sample);
  map.read_text("flops_formula", benchmark.flops_formula);
  map.read_count("eval_samples", benchmark.eval_samples, 0, kMost);
  map.read_count("eval_interval_samples", benchmark.eval_interval_samples, 0, kMost);
  map.read_real("eval_skip_per_batch", benchmark.eval_skip_per_batch);
  map.read_real("eval_skip", benchmark.eval_skip);
  map.read_count("allowance_samples", benchmark.allowance_samples, 0, kMost);
  map.read_text("train_corpus_xxh3", benchmark.train_corpus_xxh3);
  map.read_text("validation_corpus_xxh3", benchmark.validation_corpus_xxh3);
  map.read_text("source", benchmark.source);
  map.read_text("date", benchmark.date);
  for (spec::YamlMap& set : read_maps(map, "reference_sets", origin)) {
    benchmark.reference_sets.push_back(read_set(set, origin, benchmark.sequence_tokens));
  }
  map.finish();
  return benchmark;
}

std::vector<Benchmark> load_benchmarks(FileSystem& files, const std::string& catalog_folder) {
  std::vector<Benchmark> benchmarks;
  for_each_yaml(files, join_path(catalog_folder, "benchmarks"),
                [&](const std::string& text, const std::string& path) {
                  benchmarks.push_back(parse_benchmark(text, path));
                });
  return benchmarks;
}

const Benchmark* find_benchmark(const std::vector<Benchmark>& benchmarks, std::string_view name) {
  const std::string wanted = plain_name(name);
  for (const Benchmark& benchmark : benchmarks) {
    if (plain_name(benchmark.name) == wanted || plain_name(benchmark.title) == wanted) {
      return &benchmark;
    }
    for (const std::string& other : benchmark.also_called) {
      if (plain_name(other) == wanted) return &benchmark;
    }
  }
  return nullptr;
}

const ReferenceSet* find_reference_set(const Benchmark& benchmark, std::string_view ruleset) {
  for (const ReferenceSet& set : benchmark.reference_sets) {
    for (const std::string& name : set.rulesets) {
      if (name == ruleset) return &set;
    }
  }
  return nullptr;
}

}  // namespace tutti::catalog
