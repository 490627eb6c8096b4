#include "tutti/plan/what_if.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

Situation situation_of(const std::string& system) {
  static const std::vector<Constants> none;
  Situation situation;
  situation.recipe = [](const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {"batch.global=64", "batch.micro=2",
                                          "parallel.tp=8",   "parallel.dp=4",
                                          "parallel.zero=1", "train.steps=10000"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return recipe_of("llama2-70b", overrides);
  };
  situation.profile = &spec::find_profile("megatron-te");
  situation.system = &shipped().system(system);
  situation.catalog = &shipped();
  situation.sets = &none;
  return situation;
}

TEST(WhatIf, AnswersAreFullPredictions) {
  const Situation situation = situation_of("dgx-h100");
  const Outcome now = ask(situation, parse_what_if("link=1"));
  const Outcome link = ask(situation, parse_what_if("link=2"));
  EXPECT_LT(link.step.split.tp, now.step.split.tp);
  EXPECT_EQ(link.step.split.products, now.step.split.products);
  const Outcome memory = ask(situation, parse_what_if("memory=2"));
  EXPECT_LT(memory.step.split.memory, now.step.split.memory);
  // H200 is H100 with more and faster memory.
  const Outcome chip = ask(situation, parse_what_if("chip=H200"));
  EXPECT_LT(chip.step.step_seconds, now.step.step_seconds);
  EXPECT_EQ(chip.memory.bytes, now.memory.bytes);
  const Outcome system = ask(situation, parse_what_if("system=dgx-h200"));
  EXPECT_TRUE(system.impossible.empty()) << system.impossible;
  const Outcome eight = ask(situation, parse_what_if("precision=fp8"));
  EXPECT_LT(eight.step.split.products, now.step.split.products);
  const Outcome full = ask(situation, parse_what_if("recompute=full"));
  EXPECT_GT(full.step.split.recompute, 0);
  EXPECT_LT(full.memory.bytes, now.memory.bytes);
  const Outcome calm = ask(situation, parse_what_if("failures=none"));
  EXPECT_EQ(calm.step.step_seconds, now.step.step_seconds);
  EXPECT_LT(calm.run_seconds, now.run_seconds);
}

TEST(WhatIf, FourBitsOnlyIfTheChipSupportsThem) {
  const Outcome hopper = ask(situation_of("dgx-h100"), parse_what_if("precision=fp4"));
  EXPECT_NE(hopper.impossible.find("accepted on it: f32, bf16, fp8"), std::string::npos)
      << hopper.impossible;
  const Situation blackwell = situation_of("dgx-b200");
  const Outcome four = ask(blackwell, parse_what_if("precision=fp4"));
  const Outcome eight = ask(blackwell, parse_what_if("precision=mxfp8"));
  ASSERT_TRUE(four.impossible.empty()) << four.impossible;
  EXPECT_LT(four.step.split.products, eight.step.split.products);
  EXPECT_GT(four.memory.bytes, ask(blackwell, parse_what_if("link=1")).memory.bytes);
}

TEST(WhatIf, UsualQuestionsOmitCurrentSettings) {
  std::string names;
  for (const WhatIf& question : usual_questions(situation_of("dgx-h100"))) {
    names += question.name + "; ";
  }
  for (const char* asked : {"twice the network", "H200 instead of H100", "fp8", "fp4",
                            "full recomputation", "half the micro-batch", "no failures"}) {
    EXPECT_NE(names.find(asked), std::string::npos) << asked << " in " << names;
  }
  EXPECT_EQ(names.find("bf16"), std::string::npos);
  EXPECT_EQ(names.find("no recomputation"), std::string::npos);
}

TEST(WhatIf, ErrorsNameWhatIsAccepted) {
  for (const char* bad : {"speed", "=2", "network=fast", "network=0", "link=-1", "failures=some"}) {
    EXPECT_THROW(parse_what_if(bad), Error) << bad;
  }
  // A key that the recipe does not have gives a row with the recipe's error.
  EXPECT_FALSE(ask(situation_of("dgx-h100"), parse_what_if("colour=red")).impossible.empty());
  EXPECT_FALSE(ask(situation_of("dgx-h100"), parse_what_if("system=cray-1")).impossible.empty());
}

}  // namespace
}  // namespace tutti::plan
