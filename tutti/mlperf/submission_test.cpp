#include "tutti/mlperf/submission.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/mlperf/compliance.h"
#include "tutti/mlperf/system_description.h"
#include "tutti/mlperf/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

Submission example(MemoryFileSystem& files, int runs) {
  Submission s;
  s.folder = "submission";
  s.benchmark = "llama31_8b";
  s.facts.submitter = "Example";
  s.facts.system_name = "1 x Example (2 cores)";
  s.facts.version = "0.1.0+g1234";
  s.facts.fields = {{"cooling", "air"}};
  s.binary = describe_binary();
  s.system = system_description(describe_host("/tmp"), s.binary, s.facts);
  s.recipe_yaml = "train:\n  seed: 1\n";
  s.corpora = {"corpora/it's"};
  for (int i = 0; i < runs; ++i) {
    SyntheticRun run;
    run.seed = i + 1;
    run.samples_to_target = static_cast<double>(15 + i % 2) * 12'288;
    const std::string log = fmt::format("runs/{}.log", i);
    write_file(files, log, good_log(run).text());
    s.runs.emplace_back(i + 1, log);
  }
  return s;
}

ComplianceCheck check(MemoryFileSystem& files) {
  ComplianceCheck out;
  check_path(files, "submission", find_ruleset("5.1.0"), benchmarks(), out);
  return out;
}

TEST(Submission, IsCompliantAsWritten) {
  MemoryFileSystem files;
  write_submission(files, example(files, 10));
  const ComplianceCheck out = check(files);
  EXPECT_EQ(out.logs, 10);
  EXPECT_EQ(out.results, 1);
  for (const Finding& finding : out.findings) ADD_FAILURE() << format_finding(finding);
  for (const char* path :
       {"systems/1-x-Example-2-cores.json", "results/1-x-Example-2-cores/llama31_8b/result_9.txt",
        "benchmarks/llama31_8b/implementations/tutti-0.1.0-g1234/README.md",
        "benchmarks/llama31_8b/implementations/tutti-0.1.0-g1234/recipe.yaml",
        "benchmarks/llama31_8b/1-x-Example-2-cores/run_and_time.sh",
        "benchmarks/llama31_8b/1-x-Example-2-cores/1-x-Example-2-cores_tutti-0.1.0-g1234.json"}) {
    EXPECT_TRUE(files.exists(join_path("submission", path))) << path;
  }
  const std::string script =
      read_file(files, "submission/benchmarks/llama31_8b/1-x-Example-2-cores/init_datasets.sh");
  EXPECT_NE(script.find("tutti data inspect 'corpora/it'\\''s'"), std::string::npos) << script;
  // Files that are written here cannot be executed.
  const std::string readme =
      read_file(files, "submission/benchmarks/llama31_8b/1-x-Example-2-cores/README.md");
  EXPECT_NE(readme.find(" sh run_and_time.sh"), std::string::npos) << readme;
}

TEST(Submission, FailedRunsCount) {
  MemoryFileSystem files;
  Submission s = example(files, 10);
  const std::string whole = read_file(files, s.runs[4].second);
  write_file(files, s.runs[4].second, whole.substr(0, whole.rfind(":::MLLOG")));
  write_submission(files, s);
  ComplianceCheck out = check(files);
  EXPECT_EQ(out.logs, 10);
  EXPECT_TRUE(compliant(out.findings));  // the one run that may fail
  // A run that failed before it logged anything is there as well, and is one without a seed.
  s.runs[5].second = "runs/never-written.log";
  write_submission(files, s);
  out = check(files);
  EXPECT_EQ(out.logs, 10);
  EXPECT_FALSE(compliant(out.findings));
}

TEST(Submission, DescribesThisMachineInFull) {
  SubmissionFacts facts;
  facts.submitter = "Example";
  facts.system_name = "x";
  const Json system = system_description(describe_host("/tmp"), describe_binary(), facts);
  for (const std::string& field : system_fields()) {
    EXPECT_TRUE(system.contains(field)) << field;
    if (field != "other_software_stack") {
      EXPECT_TRUE(system[field].is_string()) << field;
    }
  }
  EXPECT_EQ(system["status"], "Research, Development, or Internal (RDI)");
  EXPECT_NE(system["host_processor_vcpu_count"], "0");
  EXPECT_NE(system["operating_system"], "N/A");
  facts.fields = {{"coolin", "air"}};
  EXPECT_THROW(system_description({}, {}, facts), Error);
  EXPECT_THROW(availability("sold"), Error);
}

TEST(Submission, NamesOfFoldersAreHarmless) {
  EXPECT_EQ(folder_name("AMD EPYC 7763 64-Core x2"), "AMD-EPYC-7763-64-Core-x2");
  EXPECT_EQ(folder_name("../../etc"), "etc");
  EXPECT_EQ(folder_name("a/../b"), "a-..-b");
  EXPECT_EQ(folder_name("///"), "system");
}

}  // namespace
}  // namespace tutti::mlperf
