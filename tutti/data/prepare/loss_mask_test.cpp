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
  bytes_[8] = 3;
  EXPECT_TRUE(contains(refusal(ErrorKind::unsupported), "version 3"));
}

TEST_F(LossMaskTest, FurtherRangesRoundTrip) {
  write_corpus(files_, "r", {{1, 2, 3, 4, 5}, {6, 7, 8}, {1, 2, 3, 4, 5, 6, 7}});
  write_text(files_, "r.mask", loss_mask_bytes({2, 3, 0}, 15, {{0, 3, 4}, {2, 1, 2}, {2, 4, 7}}));
  const Corpus corpus(files_, "r");
  const auto mask = open_loss_mask(files_, corpus);
  EXPECT_EQ(mask->masked_tokens(), 5 + 1 + 1 + 3);
  EXPECT_TRUE(mask->further(1).empty());
  ASSERT_EQ(mask->further(2).size(), 2U);
  EXPECT_EQ(mask->further(2)[1].begin, 4U);
  EXPECT_EQ(mask->further(2)[1].end, 7U);
  for (const MaskedRange& range :
       {MaskedRange{1, 3, 4}, {0, 2, 3}, {0, 4, 4}, {0, 4, 6}, {3, 1, 2}}) {
    write_text(files_, "r.mask", loss_mask_bytes({2, 3, 0}, 15, {range}));
    EXPECT_TRUE(contains(error_of(ErrorKind::corrupt, [&] { open_loss_mask(files_, corpus); }),
                         "out of order"))
        << range.document << " " << range.begin;
  }
  const std::string whole = loss_mask_bytes({2, 3, 0}, 15, {{0, 3, 4}});
  for (size_t cut = 0; cut < whole.size(); ++cut) {
    write_text(files_, "r.mask", whole.substr(0, cut));
    error_of(ErrorKind::corrupt, [&] { open_loss_mask(files_, corpus); });
  }
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
