#include "tutti/train/session/tuning_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

namespace tutti::train {
namespace {

// The three variables as they were, when the test ends.
class TuningFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < 3; ++i) {
      if (const char* value = std::getenv(kNames[i])) before_[i] = value;
      unsetenv(kNames[i]);
    }
  }
  void TearDown() override {
    for (size_t i = 0; i < 3; ++i) {
      if (before_[i]) {
        setenv(kNames[i], before_[i]->c_str(), 1);
      } else {
        unsetenv(kNames[i]);
      }
    }
  }

  static constexpr const char* kNames[] = {"TUTTI_TUNING", "XDG_CACHE_HOME", "HOME"};
  std::optional<std::string> before_[3];
};

TEST_F(TuningFolder, IsTheSameForAllRanksOfAUser) {
  const std::string known = tuning_folder();  // of the user's entry in the system
  EXPECT_TRUE(known.empty() || known.ends_with("/.cache/tutti")) << known;
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(tuning_folder(), "/home/somebody/.cache/tutti");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(tuning_folder(), "/cache/tutti");
  setenv("TUTTI_TUNING", "/shared", 1);
  EXPECT_EQ(tuning_folder(), "/shared");
}

TEST_F(TuningFolder, AnEmptyEnvironmentStillHasOne) { EXPECT_FALSE(tuning_folder().empty()); }

}  // namespace
}  // namespace tutti::train
