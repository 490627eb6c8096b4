#include "tutti/base/attention_workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

constexpr int64_t kMega = int64_t{1} << 20;

TEST(AttentionWorkspace, AFixedOrderKeepsTheWholeGradientOfTheScores) {
  // gpt2-124m, B32 T1024: dS in bf16, rowsum(d_out * out) in f32.
  EXPECT_EQ(attention_backward_bytes({32, 1024, 1024, 12, 12, 64}, true),
            int64_t{32} * 12 * 1024 * 1024 * 2 + 32 * 12 * 1024 * 4);
  // Both sides in whole tiles, and with grouped heads dK and dV of each query head.
  EXPECT_EQ(attention_backward_bytes({3, 65, 257, 6, 2, 64}, true),
            3 * 6 * 128 * 320 * 2 + 3 * 6 * 65 * 4 + 2 * 3 * 6 * 257 * 64 * 4);
  // In free order dQ in f32.
  EXPECT_EQ(attention_backward_bytes({2, 100, 100, 4, 4, 8}, false),
            2 * 4 * 100 * 8 * 4 + 2 * 4 * 100 * 4);
}

TEST(AttentionWorkspace, PiecesAreTheLargestWithinTheLimit) {
  const auto piece = [](const AttentionCall& call) {
    const AttentionPiece found = attention_piece(call, true);
    return std::vector<int64_t>{found.batch, found.kv_heads};
  };
  EXPECT_EQ(piece({4, 1024, 1024, 12, 12, 64}), (std::vector<int64_t>{4, 12}));
  // 806 MB: two calls of half the batch.
  EXPECT_EQ(piece({32, 1024, 1024, 12, 12, 64}), (std::vector<int64_t>{16, 12}));
  // One element takes 4.3 GB, a group of four heads 537 MB and more: the least piece.
  EXPECT_EQ(piece({2, 8192, 8192, 32, 8, 128}), (std::vector<int64_t>{1, 1}));
  // One element takes 3.2 GB, a head 134 MB: three at a time would fit, nine calls need but three.
  EXPECT_EQ(piece({1, 8192, 8192, 25, 25, 64}), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(piece({0, 8192, 8192, 32, 8, 128})[1], 1);
}

TEST(AttentionWorkspace, NoPieceButTheLeastExceedsTheLimit) {
  for (const int64_t batch : {1, 2, 7, 32}) {
    for (const int64_t tokens : {1, 63, 1000, 2048, 4097, 16384}) {
      for (const int64_t group : {1, 4}) {
        for (const bool fixed : {true, false}) {
          const AttentionCall call = {batch, tokens, tokens, 8 * group, 8, 128};
          const AttentionPiece piece = attention_piece(call, fixed);
          ASSERT_GE(piece.batch, 1);
          ASSERT_GE(piece.kv_heads, 1);
          ASSERT_TRUE(piece.batch == 1 || piece.kv_heads == 8);
          const int64_t bytes = attention_backward_bytes(
              {piece.batch, tokens, tokens, piece.kv_heads * group, piece.kv_heads, 128}, fixed);
          EXPECT_TRUE(bytes <= kAttentionPieceBytes || piece.batch * piece.kv_heads == 1);
        }
      }
    }
  }
}

// Whatever documents a sequence holds, those of a class begin in windows of their own.
TEST(AttentionWorkspace, EveryLongDocumentHasItsSlot) {
  EXPECT_TRUE(document_classes(64).empty());
  for (const int64_t sequence : {65, 128, 129, 1000, 8192}) {
    const auto classes = document_classes(sequence);
    EXPECT_EQ(classes.back().most_tokens, sequence);
    for (int64_t length = 1; length <= sequence; ++length) {
      const auto mine = [&](const DocumentClass& one) {
        return length > one.window_tokens && length <= one.most_tokens;
      };
      const auto count = std::count_if(classes.begin(), classes.end(), mine);
      ASSERT_EQ(count, length > kShortDocument ? 1 : 0) << length;
      if (count == 0) continue;
      const DocumentClass& one = *std::find_if(classes.begin(), classes.end(), mine);
      ASSERT_GT(length, one.window_tokens);  // two beginnings are further apart than a window
      ASSERT_LT((sequence - length) / one.window_tokens, one.slots);
    }
  }
}

TEST(AttentionWorkspace, LongSequencesTakeOnePiece) {
  const AttentionUse llama = {1, 8192, 32, 8, 128};
  EXPECT_LT(attention_workspace_bytes(llama), 600 * kMega);
  AttentionUse free_order = llama;
  free_order.tokens = 131072;
  free_order.fixed_order = false;
  EXPECT_LT(attention_workspace_bytes(free_order), 900 * kMega);
  AttentionUse documents = llama;
  documents.documents = true;
  EXPECT_LT(attention_workspace_bytes(documents), 700 * kMega);
  AttentionUse ring = llama;
  ring.ring = true;
  EXPECT_EQ(attention_workspace_bytes(ring),
            attention_workspace_bytes(llama) + int64_t{8192} * (4096 + 2048) * 2 + 8192 * 32 * 4);
  EXPECT_EQ(attention_workspace_bytes({}), 0);
}

}  // namespace
}  // namespace tutti
