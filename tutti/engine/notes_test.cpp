#include "tutti/engine/notes.h"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

TEST(Notes, EachIsReturnedOnce) {
  take_notes();
  note("slower");
  note("other");
  note("slower");
  EXPECT_EQ(take_notes(), (std::vector<std::string>{"slower", "other"}));
  note("slower");
  EXPECT_TRUE(take_notes().empty());
}

}  // namespace
}  // namespace tutti::engine
