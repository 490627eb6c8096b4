#include "tutti/mlperf/import.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/mlperf/testing/test_support.h"

namespace tutti::mlperf {
namespace {

struct ImportCase {
  int runs = 10;
  double samples = 184'320;  // as the reference; 98,304 are too few
  std::string division = "closed";
  std::string folder = "v5.1/results/box/llama31_8b";
  bool ruleset_asked = false;
};

ImportedResult import_of(const ImportCase& wanted) {
  MemoryFileSystem files;
  for (int i = 0; i < wanted.runs; ++i) {
    SyntheticRun run;
    run.seed = i;
    run.samples_to_target = wanted.samples;
    SyntheticLog log = good_log(run);
    log.at("submission_division").value = wanted.division;
    for (LogLine& line : log.lines) {
      if (line.key != "eval_accuracy" || wanted.division == "closed") continue;
      line.metadata["epoch_num"] = 1;
      line.value = 0.5;
    }
    write_file(files, fmt::format("{}/result_{}.txt", wanted.folder, i), log.text());
  }
  Json system = Json::object();
  for (const std::string& field : system_fields()) system[field] = "x";
  system.update({{"submitter", "Me"},
                 {"division", wanted.division},
                 {"status", "Available on-premise"},
                 {"system_name", "box"},
                 {"number_of_nodes", 1},
                 {"accelerators_per_node", 8},
                 {"accelerator_model_name", "H100"}});
  const std::string root = parent_path(parent_path(parent_path(wanted.folder)));
  write_file(files, root + "/systems/box.json", dump_json(system));
  const Ruleset& rules = find_ruleset("5.1.0");
  const ResultFolder folder = find_results(files, wanted.folder).at(0);
  return import_result(files, folder, rules, wanted.ruleset_asked,
                       score_result(files, folder, rules, benchmarks()));
}

TEST(Import, ACompliantResultIsARow) {
  const ImportedResult result = import_of({});
  ASSERT_TRUE(result.row) << result.reason;
  EXPECT_TRUE(result.row->compliant);
  EXPECT_EQ(result.row->round, "v5.1");
  EXPECT_EQ(result.row->accelerators, 8);
  EXPECT_EQ(result.row->samples_to_target, 184'320);
}

// What `check` refuses is nothing that a claim may lean on.
TEST(Import, NonCompliantResultsAreRefused) {
  const ImportedResult few = import_of({.runs = 1});
  EXPECT_FALSE(few.row);
  EXPECT_FALSE(few.too_fast);
  EXPECT_NE(few.reason.find("runs.count"), std::string::npos) << few.reason;

  const ImportedResult fast = import_of({.samples = 98'304});
  EXPECT_FALSE(fast.row);
  EXPECT_TRUE(fast.too_fast);
  EXPECT_NE(fast.reason.find("rcp.too_fast"), std::string::npos) << fast.reason;

  const ImportedResult both = import_of({.runs = 9, .samples = 98'304});
  EXPECT_FALSE(both.row || both.too_fast);
  EXPECT_NE(both.reason.find("and 1 more"), std::string::npos) << both.reason;

  const ImportedResult open = import_of({.division = "open"});
  EXPECT_FALSE(open.row);
  EXPECT_NE(open.reason.find("open division"), std::string::npos) << open.reason;
}

TEST(Import, TheRoundIsNeverGuessed) {
  EXPECT_THROW(import_of({.folder = "r/results/box/llama31_8b"}), Error);
  EXPECT_THROW(import_of({.folder = "v6.0/results/box/llama31_8b"}), Error);
  const ImportedResult asked =
      import_of({.folder = "r/results/box/llama31_8b", .ruleset_asked = true});
  ASSERT_TRUE(asked.row) << asked.reason;
  EXPECT_EQ(asked.row->round, "v5.1");
}

}  // namespace
}  // namespace tutti::mlperf
