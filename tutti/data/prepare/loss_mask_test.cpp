#include "tutti/data/prepare/loss_mask.h"

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

class LossMaskTest : public testing::Test {
 protected:
  LossMaskTest() {
    write_corpus(files_, "c", {{1, 2, 3, 4, 5}, {6, 7, 8}});
    bytes_ = loss_mask_bytes({2, 3}, 8);
  }
  std::string refusal(ErrorKind kind) {
    write_text(files_, "c.mask", bytes_);
    return error_of(kind, [&] { open_loss_mask(files_, Corpus(files_, "c")); });
  }
  MemoryFileSystem files_;
  std::string bytes_;
};

TEST_F(LossMaskTest, RoundTrip) {
  const Corpus corpus(files_, "c");
  EXPECT_EQ(open_loss_mask(files_, corpus), nullptr);
  EXPECT_EQ(bytes_.size(), 48U);
  write_text(files_, "c.mask", bytes_);
  const auto mask = open_loss_mask(files_, corpus);
  EXPECT_EQ(mask->masked(0), 2);
  EXPECT_EQ(mask->masked(1), 3);
  EXPECT_EQ(mask->masked_tokens(), 5);
}

TEST_F(LossMaskTest, DamageIsNamed) {
  const std::string whole = bytes_;
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    bytes_ = whole.substr(0, cut);
    EXPECT_TRUE(contains(refusal(ErrorKind::corrupt), "c.mask")) << cut;
  }
  bytes_ = whole;
  bytes_[45] ^= 1;
  EXPECT_TRUE(contains(refusal(ErrorKind::corrupt), "checksum"));
  bytes_ = whole + "x";
  EXPECT_TRUE(contains(refusal(ErrorKind::corrupt), "49 bytes instead of 48"));
  bytes_ = whole;
  bytes_[8] = 2;
  EXPECT_TRUE(contains(refusal(ErrorKind::unsupported), "version 2"));
}

TEST_F(LossMaskTest, MasksOfAnotherCorpusAreRefused) {
  bytes_ = loss_mask_bytes({2, 3, 0}, 8);
  EXPECT_TRUE(contains(refusal(ErrorKind::corrupt), "do not match"));
  bytes_ = loss_mask_bytes({2, 3}, 9);
  EXPECT_TRUE(contains(refusal(ErrorKind::corrupt), "do not match"));
  bytes_ = loss_mask_bytes({2, 4}, 8);
  EXPECT_TRUE(contains(refusal(ErrorKind::corrupt), "masks 4 tokens of document 1, which has 3"));
}

}  // namespace
}  // namespace tutti::data
