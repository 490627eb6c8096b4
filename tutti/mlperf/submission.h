// A submission folder, as mlcommons/policies, submission_rules.adoc ("Directory structure",
// Training) lays it out:
//
//   systems/SYSTEM.json
//   benchmarks/BENCHMARK/implementations/IMPLEMENTATION/   README.md, recipe.yaml, source.json
//   benchmarks/BENCHMARK/SYSTEM/   SYSTEM_IMPLEMENTATION.json, README.md, setup.sh,
//                                  init_datasets.sh, run_and_time.sh
//   results/SYSTEM/BENCHMARK/result_0.txt ...
//
// All scripts are what was really run: this program, with the recipe beside it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/binary.h"
#include "tutti/base/file.h"
#include "tutti/base/host.h"
#include "tutti/base/json.h"

namespace tutti::mlperf {

// What no machine can report about itself.
struct SubmissionFacts {
  std::string submitter;
  std::string system_name;
  std::string division = "closed";
  std::string status = "research";  // as in logs: onprem, cloud, preview, research
  std::string version;              // of Tutti
  // Fields of the system description to set or replace: ("cooling", "air").
  std::vector<std::pair<std::string, std::string>> fields;
};

// Letters, digits, '.', '_', '-'; a run of anything else is one '-'. Never empty.
std::string folder_name(const std::string& name);

// The words of system descriptions for those of logs: "Available cloud". Throws usage.
std::string availability(const std::string& status);

// Every field that a system description needs. Throws usage for a field it does not have.
Json system_description(const HostSheet& host, const Binary& binary, const SubmissionFacts& facts);

struct Submission {
  std::string folder;
  std::string benchmark;
  Json system;  // system_description()
  SubmissionFacts facts;
  Binary binary;
  std::string recipe_yaml;                             // resolved
  std::vector<std::string> corpora;                    // prefixes
  std::vector<std::string> corpus_facts;               // one line per corpus: hash, tokens
  std::vector<std::pair<uint64_t, std::string>> runs;  // seed and log, in the order of the runs
};

// Rewrites the folder. A log that does not exist becomes an empty result: such a run failed before
// it could log, and counts.
void write_submission(FileSystem& files, const Submission& submission);

}  // namespace tutti::mlperf
