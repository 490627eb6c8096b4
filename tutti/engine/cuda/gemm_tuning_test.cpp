#include "tutti/engine/cuda/gemm_tuning.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"

namespace tutti::engine {
namespace {

class GemmTuningTest : public ::testing::Test {
 protected:
  void SetUp() override { posix_file_system().remove_tree(folder_); }
  void TearDown() override { posix_file_system().remove_tree(folder_); }

  std::string folder_ = ::testing::TempDir() + "gemm-tuning";
};

TunedGemm choice(uint64_t number) { return {{number, 2, 3, 4, 5, 6, 7, ~uint64_t{0}}, 1e-5}; }

TEST_F(GemmTuningTest, KeepsChoicesForOtherProcesses) {
  GemmTuning first(folder_, "NVIDIA H200", 130100);
  GemmTuning second(folder_, "NVIDIA H200", 130100);
  EXPECT_FALSE(first.find("1 2 3"));
  first.add("1 2 3", choice(1));
  second.add("4 5 6", choice(4));  // which does not forget the other's
  const GemmTuning third(folder_, "NVIDIA H200", 130100);
  ASSERT_TRUE(third.find("1 2 3"));
  ASSERT_TRUE(third.find("4 5 6"));
  EXPECT_EQ(third.find("1 2 3")->algorithm, choice(1).algorithm);
  EXPECT_EQ(third.find("4 5 6")->algorithm, choice(4).algorithm);
  EXPECT_EQ(third.find("4 5 6")->seconds, 1e-5);
}

TEST_F(GemmTuningTest, OtherGpusAndVersionsHaveFilesOfTheirOwn) {
  GemmTuning one(folder_, "NVIDIA H200", 130100);
  one.add("1 2 3", choice(1));
  EXPECT_FALSE(GemmTuning(folder_, "NVIDIA H100", 130100).find("1 2 3"));
  EXPECT_FALSE(GemmTuning(folder_, "NVIDIA H200", 130200).find("1 2 3"));
}

TEST_F(GemmTuningTest, WithoutAFolderNothingIsWritten) {
  GemmTuning tuning("", "NVIDIA H200", 130100);
  tuning.add("1 2 3", choice(1));
  EXPECT_TRUE(tuning.find("1 2 3"));
  EXPECT_EQ(tuning.path(), "");
}

TEST_F(GemmTuningTest, AFileOfSomethingElseIsRefused) {
  const std::string path = GemmTuning(folder_, "NVIDIA H200", 130100).path();
  posix_file_system().create_directories(folder_);
  write_file_atomic(posix_file_system(), path,
                    R"({"format": 1, "gpu": "another", "library_version": 130100, "choices": {}})");
  try {
    const GemmTuning tuning(folder_, "NVIDIA H200", 130100);
    FAIL() << "a file of another GPU was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::engine
