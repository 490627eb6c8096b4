#include <gtest/gtest.h>

#include "tutti/engine/reference.h"
#include "tutti/engine/test_support.h"

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
    for (const int64_t n : {0, 1, 3, 42}) {
      for (const int64_t h : {1, 24, 101}) {
        for (const float beta : {0.0F, 1.0F}) {
          const TestMatrix tokens = random_tokens(n, 5);  // few, so that rows meet
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
  const auto one_thread = make_cpu_stream(1);
  EmbeddingBackwardArgs args{
      .tokens = tokens, .sequence = 10, .d_out = d_out, .d_token_table = two};
  test_stream().ops().embedding_backward(test_stream(), args);
  args.d_token_table = one;
  one_thread->ops().embedding_backward(*one_thread, args);
  EXPECT_TRUE(one.same_bytes(two));
}

TEST(EmbeddingDeathTest, TokenOutsideTheVocabularyAborts) {
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
