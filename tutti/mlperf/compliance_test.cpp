#include "tutti/mlperf/compliance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/mlperf/system_description.h"
#include "tutti/mlperf/testing/test_support.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {
namespace {

std::string system_json() {
  Json system = Json::object();
  for (const std::string& field : system_fields()) {
    system[field] = "x";
  }
  system["division"] = "closed";
  system["status"] = "Available cloud";
  system["number_of_nodes"] = "2";
  system["accelerators_per_node"] = "8";
  return dump_json(system);
}

void write_result(FileSystem& files, const std::string& folder, const std::string& benchmark) {
  const int runs = required_runs(benchmark);
  for (int i = 0; i < runs; ++i) {
    SyntheticRun run;
    run.benchmark = benchmark;
    run.seed = i;
    if (benchmark == "llama31_405b") {
      run.global_batch = 1152;
      run.samples_to_target = 18 * 18'432;
    } else if (benchmark == "llama2_70b_lora") {
      run.global_batch = 8;
      run.samples_to_target = 9 * 384;
    } else {
      run.samples_to_target = (15 + i % 2) * 12'288;
    }
    write_file(files, join_path(folder, fmt::format("result_{}.txt", i)), good_log(run).text());
  }
}

ComplianceCheck check(FileSystem& files, const std::string& path,
                      const std::string& ruleset = "5.1.0") {
  ComplianceCheck check;
  check_path(files, path, find_ruleset(ruleset), benchmarks(), check);
  return check;
}

std::vector<std::string> rules_of(const ComplianceCheck& check) {
  std::vector<std::string> rules;
  for (const Finding& finding : check.findings) rules.push_back(finding.rule);
  return rules;
}

using Rules = std::vector<std::string>;

TEST(Compliance, SubmissionTree) {
  MemoryFileSystem files;
  for (const char* benchmark : {"llama31_8b", "llama31_405b", "llama2_70b_lora"}) {
    write_result(files, join_path("org/results/box", benchmark), benchmark);
  }
  EXPECT_EQ(rules_of(check(files, "org")),
            (Rules{"layout.system", "layout.system", "layout.system"}));
  write_file(files, "org/systems/box.json", system_json());
  const ComplianceCheck good = check(files, "org/");
  EXPECT_EQ(rules_of(good), Rules{});
  EXPECT_EQ(good.logs, 23);
  EXPECT_EQ(good.results, 3);
  // Every description of the tree is checked, used or not.
  write_file(files, "org/systems/other.json", "{}");
  EXPECT_EQ(rules_of(check(files, "org")).size(), 21U);
}

TEST(Compliance, SystemDescription) {
  MemoryFileSystem files;
  const auto rules = [&](const std::string& text, const std::string& ruleset) {
    write_file(files, "system.json", text);
    Rules found;
    for (const Finding& f : check_system(files, "system.json", find_ruleset(ruleset)).findings) {
      found.push_back(f.rule);
    }
    return found;
  };
  EXPECT_EQ(rules(system_json(), "5.1.0"), Rules{});
  Json system = Json::parse(system_json());
  system["status"] = "onprem";
  EXPECT_EQ(rules(dump_json(system), "5.1.0"), Rules{"system.status"});
  EXPECT_EQ(rules(dump_json(system), "4.0.0"), Rules{});
  system.erase("cooling");
  EXPECT_EQ(rules(dump_json(system), "4.0.0"), Rules{"system.field"});
  EXPECT_EQ(rules("{", "4.0.0"), Rules{"system.json"});
  write_file(files, "system.json", system_json());
  EXPECT_EQ(check_system(files, "system.json", find_ruleset("5.1.0")).description.accelerators(),
            16);
}

TEST(Compliance, NamesOfFilesAndFolders) {
  MemoryFileSystem files;
  write_result(files, "a/llama31_8b", "llama31_8b");
  write_file(files, "a/system.json", system_json());
  EXPECT_EQ(rules_of(check(files, "a")), Rules{});
  write_file(files, "a/llama31_8b/notes.md", "");
  EXPECT_EQ(rules_of(check(files, "a")), Rules{"layout.stranger"});
  files.rename("a/llama31_8b/result_9.txt", "a/llama31_8b/result_12.txt");
  EXPECT_EQ(rules_of(check(files, "a")), (Rules{"layout.stranger", "layout.numbering"}));
  files.remove_file("a/llama31_8b/notes.md");
  files.rename("a/llama31_8b/result_12.txt", "a/llama31_8b/result_9.txt");
  files.rename("a/llama31_8b/result_0.txt", "a/llama31_8b/result_10.txt");
  EXPECT_EQ(rules_of(check(files, "a")), Rules{});
  write_result(files, "b/llama2_70b_lora", "llama31_8b");
  const Rules wrong = rules_of(check(files, "b"));
  EXPECT_NE(std::find(wrong.begin(), wrong.end(), "layout.benchmark"), wrong.end());
  EXPECT_THROW(check(files, "nowhere"), Error);
  files.create_directories("empty");
  EXPECT_THROW(check(files, "empty"), Error);
}

TEST(Compliance, OneLog) {
  MemoryFileSystem files;
  write_file(files, "run.log", good_log().text());
  const ComplianceCheck one = check(files, "run.log");
  EXPECT_TRUE(one.findings.empty());
  EXPECT_EQ(one.logs, 1);
  // 8B came with 5.1.
  EXPECT_EQ(rules_of(check(files, "run.log", "5.0.0")), Rules{"benchmark.unknown"});
}

TEST(Compliance, ResultNumbers) {
  EXPECT_EQ(result_number("a/result_7.txt"), 7);
  EXPECT_EQ(result_number("result_x.txt"), -1);
  EXPECT_EQ(result_number("result_.txt"), -1);
  EXPECT_EQ(result_number("results_1.txt"), -1);
}

TEST(Score, OlympicMeanAndOneFailedRun) {
  MemoryFileSystem files;
  write_result(files, "llama31_8b", "llama31_8b");
  const auto score = [&] {
    return score_result(files, find_results(files, "llama31_8b")[0], find_ruleset("5.1.0"),
                        benchmarks());
  };
  // 15 or 16 intervals of 12,288 samples at 10 ms and as many evaluations of 5 s, five runs each;
  // the olympic mean drops one of both kinds. Events are a millisecond apart.
  const double interval_minutes = (122.88 + 5) / 60;
  const Score all = score();
  ASSERT_TRUE(all.minutes);
  EXPECT_NEAR(*all.minutes, 15.5 * interval_minutes, 0.01);
  EXPECT_EQ(*all.samples_to_target, 15.5 * 12'288);
  EXPECT_TRUE(all.reference.pass);
  EXPECT_EQ(all.scale, 1);
  EXPECT_EQ(std::count_if(all.runs.begin(), all.runs.end(),
                          [](const ScoredRun& run) { return run.counted; }),
            8);
  // A failed run is the dropped slowest; the fastest is dropped as ever.
  SyntheticLog failed = good_log({.seed = 9});
  failed.at("eval_accuracy", 13).value = 9.0;
  write_file(files, "llama31_8b/result_9.txt", failed.text());
  const Score one = score();
  ASSERT_TRUE(one.minutes);
  EXPECT_NEAR(*one.minutes, (4 * 15 + 4 * 16) / 8.0 * interval_minutes, 0.01);
  EXPECT_EQ(one.converged_runs, 9);
  // Two leave nothing.
  write_file(files, "llama31_8b/result_3.txt", failed.text());
  EXPECT_FALSE(score().minutes);
  EXPECT_FALSE(score().raw_minutes);
}

TEST(Score, RawAndScaledMinutesAreKeptApart) {
  MemoryFileSystem files;
  for (int i = 0; i < 10; ++i) {
    SyntheticRun run;
    run.seed = i;
    // Within the limit, faster than the reference at 32: 178,859 samples.
    run.samples_to_target = (14 + (i % 2)) * 12'288;
    write_file(files, fmt::format("r/result_{}.txt", i), good_log(run).text());
  }
  const auto score = [&] {
    return score_result(files, find_results(files, "r")[0], find_ruleset("5.1.0"), benchmarks());
  };
  const Score computed = score();
  EXPECT_EQ(computed.scale_source, "recomputed");
  EXPECT_NEAR(computed.scale, 178'858.6667 / *computed.samples_to_target, 1e-6);
  EXPECT_DOUBLE_EQ(*computed.minutes, *computed.raw_minutes * computed.scale);
  EXPECT_TRUE(computed.notes.empty());
  write_file(files, "r/scaling.json", R"({"scaling_factor": 1.25})");
  const Score reviewed = score();
  EXPECT_EQ(reviewed.scale, 1.25);
  EXPECT_EQ(reviewed.raw_minutes, computed.raw_minutes);
  EXPECT_EQ(*reviewed.minutes, *reviewed.raw_minutes * 1.25);
  EXPECT_EQ(reviewed.notes.size(), 1U);
  // No factor makes a result faster, and what is not a factor does not count as 1.
  for (const char* bad :
       {R"({"scaling_factor": "much"})", R"({"scaling_factor": 0.9})", "[1.1]", "garbage", "{}",
        R"({"scaling_factor": null})", R"({"scaling_factor": 50})", R"({"scaling_factor": 1e300})",
        R"({"scaling_factor": 1e999})"}) {
    write_file(files, "r/scaling.json", bad);
    const Score wrong = score();
    EXPECT_FALSE(wrong.minutes) << bad;
    EXPECT_EQ(wrong.raw_minutes, computed.raw_minutes);
    EXPECT_FALSE(wrong.scaling_problem.empty());
    const auto findings =
        check_result(files, find_results(files, "r")[0], find_ruleset("5.1.0"), wrong);
    EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), [](const Finding& f) {
      return f.rule == "rcp.scaling" && !f.warning;
    })) << bad;
  }
}

// A folder above several rounds: each result, and each description, by the rules of its own.
TEST(Compliance, RulesMayDifferBelowOnePath) {
  MemoryFileSystem files;
  for (const char* round : {"v5.1", "v6.1"}) {
    for (int i = 0; i < 10; ++i) {
      write_file(files, fmt::format("all/{}/box/llama31_8b/result_{}.txt", round, i),
                 good_log({.seed = i, .samples_to_target = 184'320}).text());
    }
  }
  std::vector<std::string> asked;
  const RulesFor rules_for = [&](const std::string& path) -> const Ruleset& {
    asked.push_back(path);
    return find_ruleset(ruleset_of_round(round_of(path)));
  };
  ComplianceCheck check;
  check_path(files, "all", rules_for, benchmarks(), check);
  EXPECT_EQ(asked,
            (std::vector<std::string>{"all/v5.1/box/llama31_8b", "all/v6.1/box/llama31_8b"}));
  EXPECT_EQ(check.results, 2);
  ASSERT_FALSE(compliant(check.findings));  // 6.1.0 wants keys that 5.1.0 does not know
  for (const Finding& finding : check.findings) {
    EXPECT_TRUE(finding.warning || finding.file.find("all/v6.1/") == 0) << format_finding(finding);
  }
}

TEST(Score, OfTooFewRunsIsNotOfficial) {
  MemoryFileSystem files;
  const auto score = [&](int runs) {
    for (int i = 0; i < runs; ++i) {
      write_file(files, fmt::format("r/result_{}.txt", i),
                 good_log({.benchmark = "llama31_405b", .seed = i, .global_batch = 1152}).text());
    }
    return score_result(files, find_results(files, "r")[0], find_ruleset("5.1.0"), benchmarks());
  };
  EXPECT_TRUE(score(2).minutes);
  EXPECT_FALSE(official(score(2)));
  EXPECT_TRUE(official(score(3)));
  Score failed = score(3);
  failed.minutes.reset();
  EXPECT_FALSE(official(failed));
}

TEST(Score, NewestRules) {
  EXPECT_EQ(newest_ruleset(*catalog::find_benchmark(benchmarks(), "gpt3")), "4.1.0");
  EXPECT_EQ(newest_ruleset(*catalog::find_benchmark(benchmarks(), "405B")), "6.0.0");
  EXPECT_EQ(newest_ruleset(*catalog::find_benchmark(benchmarks(), "8B")), "6.1.0");
}

// A log that says "onprem" and a description that says "Available cloud"; a batch that no reference
// point is as small as.
TEST(Compliance, FinePrintIsAWarning) {
  MemoryFileSystem files;
  const std::string folder = "sub/results/box/llama31_405b";
  for (int i = 0; i < 3; ++i) {
    SyntheticRun run;
    run.benchmark = "llama31_405b";
    run.seed = i;
    run.global_batch = 1024;
    run.samples_to_target = 18 * 18'432;
    SyntheticLog log = good_log(run);
    log.lines.insert(log.lines.begin() + 4,
                     {"submission_status", "onprem", Json{{"file", "train.py"}, {"lineno", 4}},
                      log.lines[4].time_ms});
    write_file(files, fmt::format("{}/result_{}.txt", folder, i), log.text());
  }
  Json system = Json::object();
  for (const std::string& field : system_fields()) system[field] = "";
  system["status"] = "Available cloud";
  write_file(files, "sub/systems/box.json", system.dump());
  ComplianceCheck check;
  check_path(files, folder, find_ruleset("6.0.0"), benchmarks(), check);
  std::vector<std::string> rules;
  for (const Finding& finding : check.findings) {
    EXPECT_TRUE(finding.warning) << format_finding(finding);
    rules.push_back(finding.rule);
  }
  EXPECT_EQ(rules, (std::vector<std::string>{"system.availability", "rcp.below_smallest"}));
  const Score score =
      score_result(files, find_results(files, folder)[0], find_ruleset("6.0.0"), benchmarks());
  ASSERT_EQ(score.notes.size(), 1U);
  EXPECT_NE(score.notes[0].find("below the smallest"), std::string::npos);
}

TEST(Findings, EqualFindingsAreMerged) {
  std::vector<Finding> findings;
  for (int i = 0; i < 6; ++i) {
    findings.push_back({fmt::format("result_{}.txt", i), 7, "key.placeholder", "a", "b", true});
  }
  findings.push_back({"result_0.txt", 9, "key.value", "c", "d", false});
  const std::string text = format_findings(findings);
  EXPECT_EQ(text.find("result_0.txt:9: key.value: c"), 0U) << text;  // errors first
  EXPECT_NE(text.find("6 locations: result_0.txt:7, result_1.txt:7"), std::string::npos) << text;
  EXPECT_NE(text.find("and 2 more"), std::string::npos) << text;
  EXPECT_EQ(text.find("result_5"), std::string::npos);
}

}  // namespace
}  // namespace tutti::mlperf
