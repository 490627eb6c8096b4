#include "tutti/comm/world/axes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::comm {
namespace {

using spec::Axis;
using Ranks = std::vector<int64_t>;

spec::Mesh mesh() {
  spec::Mesh mesh;
  mesh.tp = 2;
  mesh.cp = 2;
  mesh.dp = 4;
  mesh.pp = 3;
  mesh.ep = 4;
  return mesh;
}

TEST(Axes, TensorRanksWithTheSameHeadsAreNeighbours) {
  const spec::Mesh mesh = {.dp = 2, .tp = 6};
  EXPECT_EQ(tensor_copies(mesh, 7, 3), (std::vector<int64_t>{6, 7, 8}));
  EXPECT_EQ(tensor_copies(mesh, 5, 2), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(tensor_copies(mesh, 4, 1), (std::vector<int64_t>{4}));
}

TEST(Axes, NamedAxesVaryTheOthersStay) {
  // tp varies fastest, then cp, dp, pp: rank 21 is tp 1, cp 0, dp 1, pp 1.
  EXPECT_EQ(members(mesh(), 21, Axis::tp), (Ranks{20, 21}));
  EXPECT_EQ(members(mesh(), 21, Axis::cp), (Ranks{21, 23}));
  EXPECT_EQ(members(mesh(), 21, Axis::dp), (Ranks{17, 21, 25, 29}));
  EXPECT_EQ(members(mesh(), 21, Axis::pp), (Ranks{5, 21, 37}));
  EXPECT_EQ(members(mesh(), 21, {Axis::dp, Axis::cp}), (Ranks{17, 19, 21, 23, 25, 27, 29, 31}));
  EXPECT_EQ(members(mesh(), 21, {Axis::tp, Axis::cp, Axis::dp, Axis::pp}).size(), 48U);
}

TEST(Axes, ExpertsAreTakenFromDataAndContext) {
  // Of dp x cp = 8 ranks {17, 19, ..., 31}, four in a row hold different experts.
  EXPECT_EQ(members(mesh(), 21, Axis::ep), (Ranks{17, 19, 21, 23}));
  EXPECT_EQ(members(mesh(), 27, Axis::ep), (Ranks{25, 27, 29, 31}));
  EXPECT_EQ(members(mesh(), 21, {Axis::ep, Axis::tp}), (Ranks{16, 17, 18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(expert_replicas(mesh(), 21), (Ranks{21, 29}));
}

TEST(Axes, EveryRankIsInOneGroupOfEachKind) {
  for (const Axes axes :
       {Axes(Axis::tp), Axes(Axis::ep), Axes{Axis::dp, Axis::cp}, Axes{Axis::pp}}) {
    for (int64_t rank = 0; rank < mesh().world(); ++rank) {
      const Ranks group = members(mesh(), rank, axes);
      EXPECT_NE(std::find(group.begin(), group.end(), rank), group.end());
      for (const int64_t other : group) EXPECT_EQ(members(mesh(), other, axes), group);
    }
  }
  for (int64_t rank = 0; rank < mesh().world(); ++rank) {
    EXPECT_EQ(static_cast<int64_t>(expert_replicas(mesh(), rank).size()),
              spec::replicas(mesh(), true));
  }
}

TEST(Axes, Names) {
  EXPECT_EQ(Axes(Axis::tp).name(), "tp");
  EXPECT_EQ((Axes{Axis::cp, Axis::dp}).name(), "dp x cp");
}

TEST(AxesDeathTest, ExpertsWithDataAreRefused) {
  EXPECT_DEATH(members(mesh(), 0, {Axis::ep, Axis::dp}), "ep is a part of dp x cp");
}

TEST(Axes, EndsOfAPipeline) {
  const spec::Mesh mesh{.dp = 2, .pp = 3};
  EXPECT_EQ(pipeline_ends(mesh, 0), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(pipeline_ends(mesh, 5), (std::vector<int64_t>{1, 5}));
}

}  // namespace
}  // namespace tutti::comm
