// The comparison finds what it is there for: each of these mistakes, made on purpose, fails it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/layouts/models.h"
#include "tutti/train/testing/faulty_groups.h"

namespace tutti::train {
namespace {

using namespace testing;

// How wrong the gradients of the first step and its loss are: expect_same allows 1e-5 of both.
struct Errors {
  double gradients = 0, loss = 0;
};
Errors errors_of(const Layout& layout, const Sabotage& sabotage, const Prepare& prepare = {}) {
  const Training& one = alone(layout);
  const Training together = train_again(layout, 1, sabotage, prepare);
  return {gradient_error(together.gradients, one.gradients),
          std::abs(together.losses.front() / one.losses.front() - 1)};
}
double error_of(const Layout& layout, const Sabotage& sabotage, const Prepare& prepare = {}) {
  return errors_of(layout, sabotage, prepare).gradients;
}

comm::Group*& replicas(parallel::Ranks& ranks) { return ranks.replicas; }
comm::Group*& expert_replicas(parallel::Ranks& ranks) { return ranks.expert_replicas; }
comm::Group*& tensor(parallel::Ranks& ranks) { return ranks.layers.tp; }
comm::Group*& sums(parallel::Ranks& ranks) { return ranks.sums; }

using comm::CallKind;

TEST(Mistakes, AMissingAllReduceIsFound) {
  FaultyGroups faulty;
  const Mistake skipped = {CallKind::all_reduce, Mistake::skip};
  for (const Layout& layout : {Layout{Kind::gpt, {.dp = 2}}, Layout{Kind::llama, {.cp = 2}},
                               Layout{Kind::llama, {.dp = 2, .pp = 2}}}) {
    SCOPED_TRACE(text_of(layout));
    EXPECT_LT(error_of(layout, faulty.make(replicas, {})), 1e-5);
    EXPECT_GT(error_of(layout, faulty.make(replicas, skipped)), 1e-2);
  }
  // Of what tensor parallel ranks have in common.
  EXPECT_GT(error_of({Kind::llama, {.tp = 2}}, faulty.make(tensor, skipped)), 1e-2);
  EXPECT_GT(error_of({Kind::experts, {.tp = 2}}, faulty.make(tensor, skipped)), 1e-2);
}

TEST(Mistakes, ADoubledExpertGradientIsFound) {
  FaultyGroups faulty;
  const Layout layout = {Kind::experts, {.dp = 4, .ep = 2}};
  EXPECT_LT(error_of(layout, faulty.make(expert_replicas, {})), 1e-5);
  EXPECT_GT(error_of(layout, faulty.make(expert_replicas, {CallKind::all_reduce, Mistake::twice})),
            1e-2);
  EXPECT_GT(error_of(layout, faulty.make(expert_replicas, {CallKind::all_reduce, Mistake::skip})),
            1e-2);
}

// Means over ranks instead of sums: of the gradients, or of the reported loss.
TEST(Mistakes, AHalvedLossIsFound) {
  FaultyGroups faulty;
  for (const Layout& layout :
       {Layout{Kind::gpt, {.dp = 2}}, Layout{Kind::llama, {.tp = 2, .cp = 2}}}) {
    SCOPED_TRACE(text_of(layout));
    const Errors gradients =
        errors_of(layout, faulty.make(replicas, {CallKind::all_reduce, Mistake::halve}));
    EXPECT_GT(gradients.gradients, 1e-2);
    EXPECT_LT(gradients.loss, 1e-5);
    // The first of the numbers that all ranks gather and sum.
    const Errors reported =
        errors_of(layout, faulty.make(sums, {CallKind::all_gather, Mistake::halve, 1}));
    EXPECT_LT(reported.gradients, 1e-5);
    EXPECT_GT(reported.loss, 1e-2);
  }
}

// The first row of a rank's second chunk does not see the last row of its first one.
void attention_with_a_wrong_edge(engine::Stream& stream,
                                 const engine::AttentionBlockForwardArgs& args) {
  engine::cpu_ops().attention_block_forward(stream, args);
  if (!args.first) return;
  const int64_t row = args.rows / 2;
  const int64_t hidden = row - 1;
  const int64_t width = args.head_dim;
  const auto at = [&](const engine::Matrix& matrix, int64_t b, int64_t t, int64_t head) {
    return matrix.row<float>(b * args.rows + t) + head * width;
  };
  for (int64_t b = 0; b < args.batch; ++b) {
    for (int64_t head = 0; head < args.heads; ++head) {
      const int64_t shared = head * args.kv_heads / args.heads;
      const float* q = at(args.q, b, row, head);
      float* total = at(args.total, b, row, head);
      std::fill(total, total + width, 0.0F);
      double sum = 0;
      for (int64_t t = 0; t <= row; ++t) {
        if (t == hidden) continue;
        double score = 0;
        for (int64_t d = 0; d < width; ++d) score += q[d] * at(args.keys, b, t, shared)[d];
        const double weight = std::exp(score * args.scale);
        sum += weight;
        for (int64_t d = 0; d < width; ++d) {
          total[d] += static_cast<float>(weight) * at(args.values, b, t, shared)[d];
        }
      }
      for (int64_t d = 0; d < width; ++d) total[d] /= static_cast<float>(sum);
      args.lse.as<float>()[(b * args.heads + head) * args.rows + row] =
          static_cast<float>(std::log(sum));
    }
  }
}

TEST(Mistakes, AWrongMaskAtABlockEdgeIsFound) {
  static const engine::OpTable wrong = [] {
    engine::OpTable table = engine::cpu_ops();
    table.attention_block_forward = attention_with_a_wrong_edge;
    return table;
  }();
  const auto make_wrong = [](Trainer& trainer) { trainer.stream().set_ops(wrong); };
  for (const Layout& layout : {Layout{Kind::llama, {.cp = 2}}, Layout{Kind::gpt, {.cp = 4}},
                               Layout{Kind::experts, {.cp = 2, .ep = 2}}}) {
    SCOPED_TRACE(text_of(layout));
    EXPECT_GT(error_of(layout, {}, make_wrong), 1e-3);
  }
}

TEST(Mistakes, SamplesReadTwiceAreFound) {
  const Sabotage sabotage = {{}, [](const parallel::Ranks&) { return int64_t{0}; }};
  EXPECT_GT(error_of({Kind::gpt, {.dp = 2, .zero = 2}}, sabotage), 1e-2);
}

}  // namespace
}  // namespace tutti::train
