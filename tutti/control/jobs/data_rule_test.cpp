#include "tutti/control/jobs/data_rule.h"

#include <gtest/gtest.h>

#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(DataRule, EveryClassAgainstEveryPlace) {
  const DataClass classes[] = {DataClass::public_, DataClass::internal, DataClass::restricted};
  for (const DataClass data : classes) {
    for (const DataClass highest : classes) {
      for (const char* region : {"eu", "us"}) {
        const Place place{"site", region, highest};
        const bool below = static_cast<int>(data) <= static_cast<int>(highest);
        const bool here = data == DataClass::public_ || std::string(region) == "eu";
        EXPECT_EQ(!refusal(data, {"eu", "ch"}, place), below && here);
        EXPECT_EQ(!refusal(data, {}, place), below && data != DataClass::restricted);
      }
    }
  }
}

TEST(DataRule, TheRuleIsNamed) {
  EXPECT_EQ(*refusal(DataClass::restricted, {"eu"}, {"lab", "eu", DataClass::internal}),
            "rule 1: 'lab' holds data up to class internal, and this is restricted");
  EXPECT_EQ(*refusal(DataClass::internal, {"eu", "ch"}, {"lab", "us", DataClass::internal}),
            "rule 2: internal data of this project stay in eu, ch, and 'lab' is in 'us'");
  EXPECT_EQ(parse_data_class(""), DataClass::internal);
  EXPECT_TRUE(throws(
      ErrorKind::usage, [] { parse_data_class("secret"); }, "restricted"));
}

// Who names a class for data that state none, and who does not.
TEST(DataRule, DataWithoutAClassCountAsTheStrictestWhereClassesAreDeclared) {
  const DataLabel label{"public", "", "corpus 'c' of data.train"};
  Place place{"lab", "us", DataClass::internal};
  EXPECT_FALSE(refusal(label, {}, place)) << "the place declares no classes";
  place.highest = DataClass::restricted;
  place.declares_classes = true;
  const std::string why = *refusal(label, {}, place);
  EXPECT_NE(why.find("rule 3"), std::string::npos) << why;
  EXPECT_NE(why.find("corpus 'c' of data.train states no class"), std::string::npos) << why;
  place.unlabelled = DataClass::public_;
  EXPECT_FALSE(refusal(label, {}, place)) << "an admin said otherwise";
  place = {"lab", "us", DataClass::internal};
  EXPECT_TRUE(refusal(label, {"eu"}, place)) << "a project with regions declares classes";
  EXPECT_FALSE(refusal(DataLabel{"public", "", ""}, {"eu"}, place));
}

TEST(DataRule, WhatStatesTheClassIsNamed) {
  const std::string why =
      *refusal(DataLabel{"restricted", "corpus 'c' of data.train", ""}, {}, {"lab", "eu"});
  EXPECT_NE(why.find("(corpus 'c' of data.train)"), std::string::npos) << why;
}

}  // namespace
}  // namespace tutti::control
