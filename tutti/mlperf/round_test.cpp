#include "tutti/mlperf/round.h"

#include <gtest/gtest.h>

namespace tutti::mlperf {
namespace {

TEST(Round, FromThePath) {
  EXPECT_EQ(round_of("training_results_v4.1/Azure/results"), "v4.1");
  EXPECT_EQ(round_of("/data/v3.0/x"), "v3.0");
  EXPECT_EQ(round_of("/data/v5.1/box_v5.0/x"), "v5.1");
  EXPECT_EQ(round_of("/src/v0.2/training_results_v6.0/x"), "v6.0");
  EXPECT_EQ(round_of("runs/gpt3"), "");
  EXPECT_EQ(round_of("runs/seven.3/v/v5/v.1"), "");
  EXPECT_EQ(ruleset_of_round("v6.1"), "6.1.0");
}

// A later round is reported, not treated as a known one.
TEST(Round, WithoutRulesStaysWhatItIs) {
  for (const char* round : {"v4.10", "v7.0", "v2.1", "v10.0"}) {
    EXPECT_EQ(round_of(std::string("/data/") + round + "/x"), round);
    EXPECT_EQ(ruleset_of_round(round), "");
  }
}

TEST(Round, InEverySpelling) {
  for (const char* name : {"v7.0", "V7.0", "v7.0.0", "7.0", "round7.0", "round_7.0", "Round 7.0",
                           "training_results_v7.0", "training_results_v7.0-main", "mlperf-v7.0",
                           "training-results-V7.0.0"}) {
    EXPECT_EQ(round_of(std::string("/data/") + name + "/x"), "v7.0") << name;
  }
  for (const char* name : {"v7", "V7", "training_results_v7"}) {
    EXPECT_EQ(round_of(std::string("/data/") + name + "/x"), "v7") << name;
    EXPECT_EQ(ruleset_of_round("v7"), "");
  }
  EXPECT_EQ(round_of("V6.0/x"), "v6.0");
  EXPECT_EQ(round_of("6.0.0/x"), "v6.0");
  EXPECT_EQ(round_of("training_results_v5"), "v5");
  EXPECT_EQ(ruleset_of_round(round_of("training_results_v5")), "");
}

// The rules of a draft are not those of the round.
TEST(Round, BeforeItWasOutIsNoKnownRound) {
  for (const auto& [name, round] : {std::pair{"v7.0-draft", "v7.0-draft"},
                                    {"v7.0 rc", "v7.0-rc"},
                                    {"v7.0rc2", "v7.0-rc2"},
                                    {"training_results_v6.0_draft", "v6.0-draft"},
                                    {"v7-beta", "v7-beta"}}) {
    EXPECT_EQ(round_of(std::string("/data/") + name + "/x"), round) << name;
    EXPECT_EQ(ruleset_of_round(round), "") << name;
  }
}

TEST(Round, OrdinaryNamesAreNone) {
  for (const char* name : {"v1",
                           "v2",
                           "v5",
                           "v100",
                           "V100-SXM",
                           "tutti-v0.2.0",
                           "nemo-25.07",
                           "25.07",
                           "12.4",
                           "3.10",
                           "0.5",
                           "1.0",
                           "2.0",
                           "3.1",
                           "llama-3.1-8b",
                           "llama3.1",
                           "results",
                           "results_3.1_8b",
                           "7",
                           "round7",
                           "rounds",
                           "lr-7.0",
                           "seed7.0",
                           "7.05",
                           "7.0.1",
                           "v7x",
                           "training",
                           "8b",
                           "70B",
                           "2026.07.01",
                           "deepseekv3_671b",
                           "v30.0.0",
                           "cuda-12.0",
                           "7.0-build"}) {
    EXPECT_EQ(round_of(std::string("/data/") + name + "/x"), "") << name;
  }
}

}  // namespace
}  // namespace tutti::mlperf
