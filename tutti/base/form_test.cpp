#include "tutti/base/form.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Fields = std::map<std::string, std::string>;

TEST(Form, FieldsAreDecoded) {
  EXPECT_EQ(parse_form(""), Fields());
  EXPECT_EQ(parse_form("a=1&b=x+%26%3d&c&=d"),
            (Fields{{"a", "1"}, {"b", "x &="}, {"c", ""}, {"", "d"}}));
  EXPECT_EQ(parse_form("t=model%3A%0D%0A++layers"), (Fields{{"t", "model:\r\n  layers"}}));
}

TEST(Form, WhatIsNoCodeStandsForItself) {
  EXPECT_EQ(parse_form("a=%&b=%4&c=%zz&d=%41"),
            (Fields{{"a", "%"}, {"b", "%4"}, {"c", "%zz"}, {"d", "A"}}));
}

TEST(Form, FirstOfRepeatedNamesWins) { EXPECT_EQ(parse_form("a=1&a=2"), (Fields{{"a", "1"}})); }

}  // namespace
}  // namespace tutti
