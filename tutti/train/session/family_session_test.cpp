// Interrupted and resumed runs of today's families equal uninterrupted ones to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tutti/train/testing/family_models.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

class FamilySession : public testing::SessionTest,
                      public ::testing::WithParamInterface<std::string> {};

TEST_P(FamilySession, ResumesToTheBit) {
  const spec::Recipe usual = recipe_;
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    recipe_ = testing::family_recipe(GetParam());
    recipe_.data = usual.data;
    recipe_.evaluate = usual.evaluate;
    recipe_.checkpoint = usual.checkpoint;
    recipe_.batch = {4, 2, 16};  // longer than the windows
    recipe_.precision = precision;
    recipe_.model.dropout = 0.1;
    expect_resume_to_the_bit(precision == spec::Precision::f32 ? "f32" : "bf16", 10);
    EXPECT_EQ(losses().size(), 20U);
  }
}

std::string family_of(const ::testing::TestParamInfo<std::string>& info) {
  std::string text = info.param;
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilySession, ::testing::ValuesIn(testing::family_names()),
                         family_of);

}  // namespace
}  // namespace tutti::train
