#include "tutti/catalog/benchmarks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti_test_paths.h"

namespace tutti::catalog {
namespace {

std::vector<Benchmark> catalog() {
  return load_benchmarks(posix_file_system(), TUTTI_SOURCE_DIR "/catalog");
}

TEST(Benchmarks, AllFilesLoad) {
  const auto benchmarks = catalog();
  std::vector<std::string> names;
  for (const Benchmark& benchmark : benchmarks) {
    names.push_back(benchmark.name);
    EXPECT_GT(benchmark.target, 0);
    EXPECT_TRUE(benchmark.name == "tutti_mini" || benchmark.flops_per_sample > 1e14);
    // A training sample costs at least forward and backward: 4 x parameters x tokens with frozen
    // weights, 6 otherwise; attention adds less than half of it. Of experts the active ones count.
    double parameters = benchmark.parameters;
    if (benchmark.name == "gpt_oss_20b") parameters = 3.61e9;
    if (benchmark.name == "deepseekv3_671b") parameters = 37e9;
    const double dense = parameters * static_cast<double>(benchmark.sequence_tokens);
    EXPECT_GT(benchmark.flops_per_sample, 4 * dense) << benchmark.name;
    EXPECT_LT(benchmark.flops_per_sample, 9 * dense) << benchmark.name;
    for (const std::string& ruleset : benchmark.rulesets) {
      const ReferenceSet* set = find_reference_set(benchmark, ruleset);
      ASSERT_NE(set, nullptr) << benchmark.name << " " << ruleset;
      for (const ReferencePoint& point : set->points) {
        EXPECT_GE(point.samples_per_run.size(), 6U);
        EXPECT_GT(point.learning_rate, 0);
        EXPECT_TRUE(std::is_sorted(point.samples_per_run.begin(), point.samples_per_run.end()));
      }
    }
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"deepseekv3_671b", "gpt3", "gpt_oss_20b", "llama2_70b_lora",
                                      "llama31_405b", "llama31_8b", "tutti_mini"}));
}

TEST(Benchmarks, TokensBecomeSamples) {
  const auto benchmarks = catalog();
  const Benchmark* gpt3 = find_benchmark(benchmarks, "GPT-3 175B");
  ASSERT_NE(gpt3, nullptr);
  const ReferenceSet* set = find_reference_set(*gpt3, "4.0.0");
  ASSERT_NE(set, nullptr);
  ASSERT_EQ(set->points.size(), 5U);
  EXPECT_EQ(set->points[0].global_batch_samples, 1536);
  EXPECT_EQ(set->points[0].samples_per_run.front(), 1157627904.0 / 2048);
  EXPECT_EQ(find_reference_set(*gpt3, "5.0.0"), nullptr);
}

TEST(Benchmarks, OtherNames) {
  const auto benchmarks = catalog();
  EXPECT_EQ(find_benchmark(benchmarks, "175B")->name, "gpt3");
  EXPECT_EQ(find_benchmark(benchmarks, "Llama 3.1 405B")->name, "llama31_405b");
  EXPECT_EQ(find_benchmark(benchmarks, "LoRA")->name, "llama2_70b_lora");
  EXPECT_EQ(find_benchmark(benchmarks, "resnet"), nullptr);
}

TEST(Benchmarks, ErrorsNameFileLineAndKey) {
  const auto error_of = [](const std::string& yaml) -> std::string {
    try {
      parse_benchmark(yaml, "b.yaml");
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(error_of("name: x\n").find("b.yaml: target: is missing"), std::string::npos);
  const std::string good =
      "name: x\ntarget: 1\nsequence_tokens: 8\nruns_per_result: 3\nparameters: 1e9\n"
      "flops_per_sample: 1e12\nsource: s\ndate: d\n";
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_NE(error_of(good + "targett: 2\n").find("did you mean 'target'"), std::string::npos);
  EXPECT_NE(error_of(good + "reference_sets:\n- source: s\n  date: d\n  points:\n"
                            "  - {global_batch_samples: 8, samples_per_run: [1, 2]}\n")
                .find("three runs or more"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::catalog
