#include "tutti/control/jobs/data_rule.h"

#include <gtest/gtest.h>

#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(DataRule, EveryClassAgainstEverySite) {
  const DataClass classes[] = {DataClass::public_, DataClass::internal, DataClass::restricted};
  for (const DataClass data : classes) {
    for (const DataClass highest : classes) {
      for (const char* region : {"eu", "us"}) {
        const SitePolicy site{"site", region, highest};
        const bool below = static_cast<int>(data) <= static_cast<int>(highest);
        const bool here = data == DataClass::public_ || std::string(region) == "eu";
        EXPECT_EQ(!refusal(data, {"eu", "ch"}, site), below && here);
        EXPECT_EQ(!refusal(data, {}, site), below && data != DataClass::restricted);
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

// Sites with and without a class for unlabelled data.
TEST(DataRule, UnlabelledDataCountAsTheStrictestDeclaredClass) {
  const DataLabel label{"public", "", "corpus 'c' of data.train"};
  SitePolicy site{"lab", "us", DataClass::internal};
  EXPECT_FALSE(refusal(label, {}, site)) << "the site declares no classes";
  site.highest = DataClass::restricted;
  site.declares_classes = true;
  const std::string why = *refusal(label, {}, site);
  EXPECT_NE(why.find("rule 3"), std::string::npos) << why;
  EXPECT_NE(why.find("corpus 'c' of data.train states no class"), std::string::npos) << why;
  site.unlabelled = DataClass::public_;
  EXPECT_FALSE(refusal(label, {}, site)) << "an admin said otherwise";
  site = {"lab", "us", DataClass::internal};
  EXPECT_TRUE(refusal(label, {"eu"}, site)) << "a project with regions declares classes";
  EXPECT_FALSE(refusal(DataLabel{"public", "", ""}, {"eu"}, site));
}

TEST(DataRule, WhatStatesTheClassIsNamed) {
  const std::string why =
      *refusal(DataLabel{"restricted", "corpus 'c' of data.train", ""}, {}, {"lab", "eu"});
  EXPECT_NE(why.find("(corpus 'c' of data.train)"), std::string::npos) << why;
}

}  // namespace
}  // namespace tutti::control
