#include <gtest/gtest.h>

#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

constexpr int64_t kVocabulary = 101;
constexpr int64_t kContext = 32;

std::vector<double> positions_of(int64_t rows, int64_t sequence, int64_t first) {
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r) out.push_back(static_cast<double>(first + r % sequence));
  return out;
}

TEST(Embedding, ForwardEqualsTheReference) {
  for_each_isa_and_dtype([](DType dtype) {
    for (const int64_t n : {0, 1, 3, 21}) {
      for (const int64_t h : {1, 24, 101}) {
        const TestMatrix tokens = random_tokens(n, kVocabulary);
        const TestMatrix table = random_matrix(kVocabulary, h, dtype, 1, 1, 3);
        const TestMatrix positions = random_matrix(kContext, h, dtype, 2);
        TestMatrix out = poisoned_matrix(n, h, DType::f32, 5);
        EmbeddingForwardArgs args{
            .tokens = tokens, .sequence = 7, .token_table = table, .out = out};
        test_stream().ops().embedding_forward(test_stream(), args);
        EXPECT_TRUE(close(
            out, reference::embedding_forward(tokens.values(), table.values(), {}, {}, h), 1e-7));
        args.position_table = positions;
        args.first_position = 4;
        test_stream().ops().embedding_forward(test_stream(), args);
        EXPECT_TRUE(
            close(out,
                  reference::embedding_forward(tokens.values(), table.values(),
                                               positions_of(n, 7, 4), positions.values(), h),
                  1e-6));
        const TestMatrix given = random_tokens(n, kContext, 6);
        args.positions = given;
        test_stream().ops().embedding_forward(test_stream(), args);
        EXPECT_TRUE(close(out,
                          reference::embedding_forward(tokens.values(), table.values(),
                                                       given.values(), positions.values(), h),
                          1e-6));
      }
    }
  });
}

TEST(Embedding, BackwardEqualsTheReference) {
  for_each_isa([] {
    for (const int64_t n : {0, 1, 3, 42, 300}) {
      for (const int64_t h : {1, 24, 101}) {
        for (const float beta : {0.0F, 1.0F}) {
          const TestMatrix tokens = random_tokens(n, 5);  // few tokens, so that rows collide
          const TestMatrix d_out = random_matrix(n, h, DType::f32, 1, 1, 3);
          const TestMatrix before = random_matrix(kVocabulary, h, DType::f32, 2, 1, 1);
          const TestMatrix before_positions = random_matrix(kContext, h, DType::f32, 3);
          TestMatrix table = beta == 0 ? poisoned_matrix(kVocabulary, h, DType::f32, 1) : before;
          TestMatrix positions = before_positions;
          const EmbeddingBackwardArgs args{.tokens = tokens,
                                           .sequence = 7,
                                           .d_out = d_out,
                                           .token_beta = beta,
                                           .d_token_table = table,
                                           .d_position_table = positions};
          test_stream().ops().embedding_backward(test_stream(), args);
          const auto start =
              beta == 0 ? std::vector<double>(before.values().size()) : before.values();
          EXPECT_TRUE(
              close(table, reference::embedding_backward(tokens.values(), d_out.values(), h, start),
                    1e-5));
          EXPECT_TRUE(close(positions,
                            reference::embedding_backward(positions_of(n, 7, 0), d_out.values(), h,
                                                          before_positions.values()),
                            1e-5));
          const TestMatrix given = random_tokens(n, kContext, 6);
          TestMatrix again = before_positions;
          EmbeddingBackwardArgs moved = args;
          moved.positions = given;
          moved.d_position_table = again;
          test_stream().ops().embedding_backward(test_stream(), moved);
          EXPECT_TRUE(close(again,
                            reference::embedding_backward(given.values(), d_out.values(), h,
                                                          before_positions.values()),
                            1e-5));
        }
      }
    }
  });
}

TEST(Embedding, BackwardDoesNotDependOnThreads) {
  const TestMatrix tokens = random_tokens(200, 3);
  const TestMatrix d_out = random_matrix(200, 101);
  TestMatrix two = zero_matrix(3, 101);
  TestMatrix one = zero_matrix(3, 101);
  const auto one_thread = make_test_stream(1);
  EmbeddingBackwardArgs args{
      .tokens = tokens, .sequence = 10, .d_out = d_out, .d_token_table = two};
  test_stream().ops().embedding_backward(test_stream(), args);
  args.d_token_table = one;
  one_thread->ops().embedding_backward(*one_thread, args);
  EXPECT_TRUE(one.same_bytes(two));
}

// Two ranks with a shard of the token table each: their results sum to that of the whole table.
TEST(Embedding, ShardsOfATableSumToTheWhole) {
  for_each_isa_and_dtype([](DType dtype) {
    constexpr int64_t kSplit = 40;
    for (const int64_t n : {0, 1, 21}) {
      for (const int64_t h : {1, 24, 101}) {
        const TestMatrix tokens = random_tokens(n, kVocabulary);
        const TestMatrix table = random_matrix(kVocabulary, h, dtype, 1, 1, 3);
        const TestMatrix positions = random_matrix(kContext, h, dtype, 2);
        const Matrix parts[] = {table.view().slice_rows(0, kSplit),
                                table.view().slice_rows(kSplit, kVocabulary - kSplit)};
        TestMatrix found[2] = {poisoned_matrix(n, h, dtype, 2), poisoned_matrix(n, h, dtype, 2)};
        TestMatrix summed = zero_matrix(n, h, dtype);
        for (const int64_t part : {0, 1}) {
          test_stream().ops().embedding_forward(test_stream(), {.tokens = tokens,
                                                                .token_table = parts[part],
                                                                .out = found[part],
                                                                .first_token = part * kSplit,
                                                                .vocabulary = kVocabulary});
          TestMatrix wide = poisoned_matrix(n, h);
          test_stream().ops().embedding_forward(test_stream(), {.tokens = tokens,
                                                                .sequence = 7,
                                                                .token_table = parts[part],
                                                                .out = wide,
                                                                .first_token = part * kSplit,
                                                                .vocabulary = kVocabulary});
          EXPECT_EQ(wide.values(), found[part].values());
        }
        for (int64_t r = 0; r < n; ++r) {
          for (int64_t j = 0; j < h; ++j) {
            summed.set(r, j, found[0].at(r, j) + found[1].at(r, j));
          }
        }
        for (const bool given : {false, true}) {
          const TestMatrix rows = random_tokens(n, kContext, 6);
          TestMatrix out = poisoned_matrix(n, h, DType::f32, 5);
          AddPositionsArgs args{
              .x = summed, .sequence = 7, .position_table = positions, .first_row = 4, .out = out};
          if (given) args.positions = rows;
          test_stream().ops().add_positions(test_stream(), args);
          std::vector<double> at = rows.values();
          for (int64_t r = 0; r < n && !given; ++r) {
            at[static_cast<size_t>(r)] = static_cast<double>((4 + r) % 7);
          }
          EXPECT_TRUE(close(out,
                            reference::embedding_forward(tokens.values(), table.values(), at,
                                                         positions.values(), h),
                            1e-6));
        }
        TestMatrix plain = poisoned_matrix(n, h);
        test_stream().ops().add_positions(test_stream(),
                                          {.x = summed, .sequence = 1, .out = plain});
        EXPECT_EQ(plain.values(), summed.values());
      }
    }
  });
}

TEST(Embedding, BackwardOfShardsOfATable) {
  for_each_isa_and_dtype([](DType dtype) {
    constexpr int64_t kSplit = 3;
    const int64_t n = 42;
    const int64_t h = 101;
    const TestMatrix tokens = random_tokens(n, 5);
    const TestMatrix d_out = random_matrix(n, h, dtype, 1, 1, 3);
    const auto expected = reference::embedding_backward(tokens.values(), d_out.values(), h,
                                                        std::vector<double>(5 * h));
    TestMatrix whole = poisoned_matrix(5, h);
    for (const int64_t part : {0, 1}) {
      test_stream().ops().embedding_backward(
          test_stream(), {.tokens = tokens,
                          .d_out = d_out,
                          .token_beta = 0,
                          .d_token_table = part == 0 ? whole.view().slice_rows(0, kSplit)
                                                     : whole.view().slice_rows(kSplit, 5 - kSplit),
                          .first_token = part * kSplit,
                          .vocabulary = 5});
    }
    EXPECT_TRUE(close(whole, expected, 1e-5));
    TestMatrix positions = poisoned_matrix(kContext, h);
    test_stream().ops().embedding_backward(test_stream(), {.sequence = 7,
                                                           .d_out = d_out,
                                                           .position_beta = 0,
                                                           .d_position_table = positions,
                                                           .first_row = 4});
    std::vector<double> at;
    for (int64_t r = 0; r < n; ++r) at.push_back(static_cast<double>((4 + r) % 7));
    EXPECT_TRUE(close(
        positions,
        reference::embedding_backward(at, d_out.values(), h, std::vector<double>(kContext * h)),
        1e-5));
  });
}

TEST(EmbeddingDeathTest, TokenOutsideTheVocabularyAborts) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: the device checks values and faults";
  const TestMatrix tokens = TestMatrix(1, 2, DType::i32).assign({1, 5});
  const TestMatrix table = zero_matrix(5, 4);
  const TestMatrix out = zero_matrix(2, 4);
  const EmbeddingForwardArgs args{
      .tokens = tokens, .sequence = 2, .token_table = table, .out = out};
  EXPECT_DEATH(test_stream().ops().embedding_forward(test_stream(), args),
               "token 5 of row 1 is not below 5");
}

}  // namespace
}  // namespace tutti::engine::testing
