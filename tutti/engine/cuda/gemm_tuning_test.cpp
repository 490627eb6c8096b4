#include "tutti/engine/cuda/gemm_tuning.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

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

TEST_F(GemmTuningTest, StoresChoicesForOtherProcesses) {
  GemmTuning first(folder_, "NVIDIA H200", 130100);
  GemmTuning second(folder_, "NVIDIA H200", 130100);
  EXPECT_FALSE(first.find("1 2 3"));
  first.add("1 2 3", choice(1));
  second.add("4 5 6", choice(4));  // keeps the entry of the other
  const GemmTuning third(folder_, "NVIDIA H200", 130100);
  ASSERT_TRUE(third.find("1 2 3"));
  ASSERT_TRUE(third.find("4 5 6"));
  EXPECT_EQ(third.find("1 2 3")->algorithm, choice(1).algorithm);
  EXPECT_EQ(third.find("4 5 6")->algorithm, choice(4).algorithm);
  EXPECT_EQ(third.find("4 5 6")->seconds, 1e-5);
}

TEST_F(GemmTuningTest, FirstOfSeveralMeasurementsWins) {
  GemmTuning first(folder_, "NVIDIA H200", 130100);
  GemmTuning second(folder_, "NVIDIA H200", 130100);
  EXPECT_EQ(first.add("1 2 3", choice(1)).algorithm, choice(1).algorithm);
  EXPECT_EQ(second.add("1 2 3", choice(2)).algorithm, choice(1).algorithm);
  EXPECT_EQ(second.find("1 2 3")->algorithm, choice(1).algorithm);
  EXPECT_EQ(GemmTuning(folder_, "NVIDIA H200", 130100).find("1 2 3")->algorithm,
            choice(1).algorithm);
}

TEST_F(GemmTuningTest, UnwritableFolderIsAWarningNotAnError) {
  posix_file_system().create_directories(folder_);
  write_file_atomic(posix_file_system(), folder_ + "/file", "not a folder");
  GemmTuning tuning(folder_ + "/file/below", "NVIDIA H200", 130100);
  EXPECT_EQ(tuning.warning(), "");
  EXPECT_EQ(tuning.add("1 2 3", choice(1)).algorithm, choice(1).algorithm);
  EXPECT_NE(tuning.warning().find("TUTTI_TUNING"), std::string::npos);
  ASSERT_TRUE(tuning.find("1 2 3"));
  EXPECT_EQ(tuning.add("4 5 6", choice(4)).algorithm, choice(4).algorithm);
}

TEST_F(GemmTuningTest, ConcurrentProcessesAgree) {
  constexpr int kProcesses = 8;
  constexpr int kProducts = 10;
  std::array<std::array<TunedGemm, kProducts>, kProcesses> chosen;
  std::vector<std::thread> processes;
  for (int i = 0; i < kProcesses; ++i) {
    processes.emplace_back([&, i] {
      GemmTuning tuning(folder_, "NVIDIA H200", 130100);
      for (int product = 0; product < kProducts; ++product) {
        chosen[static_cast<size_t>(i)][static_cast<size_t>(product)] =
            tuning.add(std::to_string(product), choice(static_cast<uint64_t>(i)));
      }
    });
  }
  for (std::thread& process : processes) process.join();
  const GemmTuning last(folder_, "NVIDIA H200", 130100);
  for (size_t product = 0; product < kProducts; ++product) {
    ASSERT_TRUE(last.find(std::to_string(product))) << product;
    for (const auto& one : chosen) {
      EXPECT_EQ(one[product].algorithm, last.find(std::to_string(product))->algorithm) << product;
    }
  }
}

TEST_F(GemmTuningTest, OtherGpusAndVersionsHaveSeparateFiles) {
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

TEST_F(GemmTuningTest, FileOfAnotherGpuIsAnError) {
  const std::string path = GemmTuning(folder_, "NVIDIA H200", 130100).path();
  posix_file_system().create_directories(folder_);
  write_file_atomic(posix_file_system(), path,
                    R"({"format": 1, "gpu": "another", "library_version": 130100, "choices": {}})");
  try {
    const GemmTuning tuning(folder_, "NVIDIA H200", 130100);
    FAIL() << "accepted a file of another GPU";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace tutti::engine
