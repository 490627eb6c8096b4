#include "tutti/plan/mlperf_rows.h"

#include <gtest/gtest.h>

#include "tutti/plan/plan_rows_test_support.h"

namespace tutti::plan {
namespace {

const std::string kHeader =
    "round,benchmark,submitter,system,accelerator,num_accelerators,nodes,global_batch,micro_batch,"
    "tp,"
    "pp,cp,dp,precision,minutes,samples_to_target,source\n";

TEST(MlperfRows, RunIsStepsAndEvaluations) {
  const std::vector<PreparedRow> rows =
      rows_of(kHeader +
              "v4.0,gpt3,N,eos,H100-SXM5-80GB,512,64,2048,2,4,8,1,16,FP8,58,589824,"
              "training_results_v4.0:N/results ; RCP scaling 1.02 (raw 56.9 min)\n");
  ASSERT_EQ(rows.size(), 1U);
  const Measurement& row = rows.front().measurement();
  EXPECT_EQ(row.unpredictable, "");
  EXPECT_EQ(row.system, "dgx-h100");
  EXPECT_EQ(row.software, "mlperf-4.0");
  EXPECT_DOUBLE_EQ(row.value, 56.9);  // before scaling
  EXPECT_DOUBLE_EQ(row.run.steps, 288);
  EXPECT_DOUBLE_EQ(row.run.evaluations, 24);
  EXPECT_EQ(row.run.evaluation_samples, 5659);
  EXPECT_EQ(row.recipe.parallel.zero, 1);
  // Twice the steps and evaluations take twice as long.
  Measurement twice = row;
  twice.run.steps *= 2;
  twice.run.evaluations *= 2;
  const PreparedRow prepared(std::move(twice), shipped_catalog());
  Constants constants = assumed_constants();
  constants[Constant::run_start_seconds] = 0;
  EXPECT_NEAR(prepared.predict(constants), 2 * rows.front().predict(constants), 1e-9);
}

TEST(MlperfRows, LayoutComesFromALikeRowOrIsSearched) {
  const std::string like =
      "v5.0,llama2_70b_lora,N,nyx,B200-SXM-180GB,8,1,8,1,1,1,1,8,FP8,11.3,3168,"
      "training_results_v5.0:N\n";
  const std::string open =
      "v5.0,llama2_70b_lora,M,other,B200-SXM-180GB,8,1,8,,,,,,,11.4,3168,"
      "training_results_v5.0:M\n";
  const std::vector<PreparedRow> known = rows_of(kHeader + like + open);
  EXPECT_TRUE(known[1].measurement().free.empty());
  EXPECT_EQ(known[0].layout(), known[1].layout());
  EXPECT_EQ(known[1].measurement().recipe.lora.rank, 16);
  const std::vector<PreparedRow> alone = rows_of(kHeader + open);
  EXPECT_EQ(alone[0].measurement().free, std::vector<std::string>{"layout"});
  EXPECT_GT(alone[0].predict(assumed_constants()), 0);
}

TEST(MlperfRows, WhatCannotBePredictedSaysWhy) {
  const std::vector<PreparedRow> rows = rows_of(
      kHeader +
      "v3.1,gpt3,G,c,TPU-v5e,4096,1024,2048,,,,,,,44.6,589824,training_results_v3.1:G\n"
      "v3.1,bert,N,c,H100-SXM5-80GB,8,1,8,1,1,1,1,8,FP8,1,100,training_results_v3.1:N\n"
      "v3.1,gpt3,N,c,H100-SXM5-80GB,512,64,2048,1,4,8,1,8,FP8,1,100,training_results_v3.1:N\n"
      "v3.1,gpt3,N,c,H100-SXM5-80GB,512,64,2048,1,4,8,1,16,FP8,1,,training_results_v3.1:N\n"
      "v3.1,gpt3,N,c,H100-SXM5-80GB,512,64,2048,1,4,8,1,16,FP8,,100,training_results_v3.1:N\n");
  for (const PreparedRow& row : rows) EXPECT_FALSE(row.predictable());
  EXPECT_NE(rows[0].measurement().unpredictable.find("TPU-v5e"), std::string::npos);
  EXPECT_NE(rows[1].measurement().unpredictable.find("bert"), std::string::npos);
  EXPECT_NE(rows[2].measurement().unpredictable.find("512 accelerators"), std::string::npos);
  EXPECT_NE(rows[3].measurement().unpredictable.find("samples to the target"), std::string::npos);
  EXPECT_NE(rows[4].measurement().unpredictable.find("value is missing"), std::string::npos);
}

}  // namespace
}  // namespace tutti::plan
