#include "tutti/parallel/state_watch.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/engine/word_sum.h"

namespace tutti::parallel {
namespace {

// Two slices of some elements, and frozen weights; an update that rewrites everything.
class StateWatchTest : public ::testing::Test {
 protected:
  static constexpr int64_t kCount = 5;

  StateWatchTest() {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] = static_cast<float>(i) * 0.37F - 1;
    for (size_t i = 0; i < halves_.size(); ++i) halves_[i] = to_bf16(static_cast<float>(i));
    watch_.trust();
  }

  engine::Vector words(int64_t part) {
    return engine::vector(words_.data() + part * kCount, DType::f32, kCount);
  }
  engine::Vector halves(int64_t part) {
    return engine::vector(halves_.data() + part * kCount, DType::bf16, kCount);
  }
  std::vector<optim::AdamwState> owned() {
    std::vector<optim::AdamwState> out(2);
    for (int64_t i = 0; i < 2; ++i) {
      optim::AdamwState& state = out[static_cast<size_t>(i)];
      state.master = words(3 * i);
      state.moment1 = words(3 * i + 1);
      state.moment2 = words(3 * i + 2);
      state.weights = halves(i);
    }
    return out;
  }

  engine::AdamwSums::Arrays sums() {
    engine::AdamwSums::Arrays out{};
    for (const optim::AdamwState& state : owned()) {
      out[0] += engine::word_sum(state.master);
      out[1] += engine::word_sum(state.moment1);
      out[2] += engine::word_sum(state.moment2);
      out[3] += engine::word_sum(state.weights);
    }
    return out;
  }
  void update() {
    engine::AdamwSums sums_of_update;
    sums_of_update.before = sums();
    for (float& word : words_) word = word * 0.9F + 0.01F;
    for (bf16& half : halves_) half.bits += 3;
    words_[6 * kCount] = frozen_;  // which no update writes
    sums_of_update.after = sums();
    watch_.updated(sums_of_update);
  }
  static std::string error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt);
      return error.what();
    }
    return "";
  }

  std::array<float, 6 * kCount + 1> words_{};
  std::array<bf16, 2 * kCount> halves_{};
  const float frozen_ = static_cast<float>(6 * kCount) * 0.37F - 1;
  StateWatch watch_{3, owned(), engine::vector(words_.data() + 6 * kCount, DType::f32, 1)};
};

TEST_F(StateWatchTest, UpdatedStateIsTrusted) {
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(error_of([&] { update(); }), "");
    EXPECT_EQ(watch_.damage(), "");
  }
}

TEST_F(StateWatchTest, EveryFlippedBitIsFoundWithItsRank) {
  const char* names[] = {"parameters", "first moments", "second moments"};
  for (size_t word = 0; word < words_.size(); ++word) {
    for (int bit = 0; bit < 32; ++bit) {
      const float before = words_[word];
      words_[word] = std::bit_cast<float>(std::bit_cast<uint32_t>(before) ^ (1U << bit));
      const bool is_frozen = word == 6 * kCount;
      const std::string what = is_frozen ? "frozen weights" : names[word / kCount % 3];
      const std::string error = watch_.damage();
      EXPECT_NE(error.find("memory of rank 3 a bit has flipped: its " + what + " are"),
                std::string::npos)
          << word << " bit " << bit << ": " << error;
      words_[word] = before;
    }
  }
  halves_[7].bits ^= 1;
  EXPECT_NE(error_of([&] { update(); }).find("weights in the compute type"), std::string::npos);
}

TEST_F(StateWatchTest, UpdatesDetectEarlierChanges) {
  update();
  words_[2 * kCount] += 1e-3F;
  EXPECT_NE(error_of([&] { update(); }).find("second moments"), std::string::npos);
}

TEST_F(StateWatchTest, WhatIsLentMayChange) {
  const engine::Vector part = engine::vector(words_.data() + 1, DType::f32, 2);
  const engine::Vector weights = engine::vector(halves_.data() + 1, DType::bf16, 2);
  watch_.lend(part, weights);
  words_[1] += 7;
  halves_[2].bits ^= 5;
  watch_.take_back(part, weights);
  EXPECT_EQ(error_of([&] { update(); }), "");
  words_[1] += 7;
  EXPECT_NE(error_of([&] { update(); }), "");
}

TEST_F(StateWatchTest, AnnouncedWritesAreTrusted) {
  words_[0] = 42;
  watch_.trust();
  EXPECT_EQ(error_of([&] { update(); }), "");
}

}  // namespace
}  // namespace tutti::parallel
