#include "tutti/base/csv.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti {
namespace {

TEST(Csv, QuotesLineEndsAndNumbers) {
  const CsvTable table = parse_csv("a,b\r\n1,\"x, \"\"y\"\"\nz\"\n\n2.5,\n", "t.csv");
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.field(0, "b"), "x, \"y\"\nz");
  EXPECT_EQ(table.lines, (std::vector<int>{2, 5}));
  EXPECT_EQ(table.number(1, "a", 0), 2.5);
  EXPECT_EQ(table.number(1, "b", 7), 7);
  EXPECT_EQ(table.number(1, "absent", 8), 8);
  EXPECT_THROW(table.number(0, "b", 0), Error);
}

TEST(Csv, SaysWhereItIsBroken) {
  for (const char* text : {"a,a\n", "a,b\n1\n", "a\n\"x\n"}) {
    SCOPED_TRACE(text);
    try {
      parse_csv(text, "t.csv");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      EXPECT_EQ(std::string(error.what()).substr(0, 6), "t.csv:");
    }
  }
}

}  // namespace
}  // namespace tutti
