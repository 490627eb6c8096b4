// The rules of MLPerf Training logs, one ruleset per published version, as data.
//
// tutti-1 is Tutti's own: the rules of 5.1.0 for tutti_mini, a benchmark of half a minute
// (docs/mlperf.md), and for nothing else.
//
// A ruleset says which keys a log needs, how often, with which values, and in which order; the
// functions in ruleset.cpp build each version from the one before it. Sources:
// mlcommons/logging, compliance_checker/training_<version>/*.yaml (the checker is what decides),
// mlcommons/training_policies, training_rules.adoc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::mlperf {

enum class Occurs {
  any,          // optional, and checked when present
  exactly_one,  // more than one with the same value: a warning
  at_least_one,
};

// What the value of a key must satisfy.
enum class Test {
  any,
  present,             // anything but ""
  word,                // one of `words`
  number,              // one of `numbers`, exactly
  positive,            // a number above zero
  at_least,            // a number from numbers[0] on
  integer,             // a number within 1e-5 of an integer; from numbers[0] on where it is given
  rate_405b,           // value * 1152 == global_batch_size * 8e-5, in doubles
  decay_405b,          // ceil(1.2e6 * 1152 / GBS) - ceil(8000 * 1152 / GBS)
  rate_deepseek,       // within 1e-9 of 2.4e-5 * sqrt(GBS / 16384)
  decay_after_warmup,  // numbers[0] - warmup steps
  target,              // at least one value in (above, at_most]; NaN never
};

struct KeyRule {
  std::string key;
  Occurs occurs = Occurs::exactly_one;
  Test test = Test::any;
  std::vector<std::string> words = {};
  std::vector<double> numbers = {};
  // Of these members of the metadata, one must be there; none named: no rule.
  std::vector<std::string> metadata = {};
  double above = 0;
  double at_most = 0;
  std::string needs = {};  // a key that must come earlier, since the value is tested against it
  // The samples_count of the first record is GBS * floor(first_steps + first_samples / GBS); both
  // 0: it is free.
  double first_steps = 0;
  double first_samples = 0;
};

// Rules of one benchmark in one division; they replace common rules of the same key.
struct BenchmarkRules {
  std::string benchmark;
  std::string division;  // "closed" or "open"
  std::vector<KeyRule> keys;
};

struct Ruleset {
  std::string version;  // "4.1.0", "tutti-1"
  std::vector<KeyRule> common;
  // Accepted values of submission_benchmark, with those that Tutti has no rules for.
  std::vector<std::string> closed_benchmarks;
  std::vector<std::string> open_benchmarks;
  std::vector<BenchmarkRules> benchmarks;
  // Metadata members that count progress at the start of a block, the stop of a block.
  std::vector<std::string> block_start_metadata;
  std::vector<std::string> block_stop_metadata;
  std::string block_count;  // the member beside epoch_count that must not be negative; may be ""
  bool checks_availability = false;  // status of the system description is one of a list
};

std::vector<std::string> ruleset_versions();  // MLPerf's, oldest first; then Tutti's

// Throws usage listing the known versions.
const Ruleset& find_ruleset(std::string_view version);

// nullptr when the ruleset has no rules for them.
const BenchmarkRules* find_rules(const Ruleset& ruleset, std::string_view benchmark,
                                 std::string_view division);

// The minutes that may pass from the first init_start to init_stop.
double allowed_init_minutes(std::string_view division);  // closed 30, open 240, else 0

// Result files of a complete result: 3, 5 or 10; 0 for benchmarks Tutti has no rules for.
int required_runs(std::string_view benchmark);

}  // namespace tutti::mlperf
