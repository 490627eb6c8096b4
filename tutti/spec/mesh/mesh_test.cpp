#include "tutti/spec/mesh/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace tutti::spec {
namespace {

TEST(Mesh, RanksAndCoordinatesAreInverse) {
  Mesh mesh;
  mesh.tp = 3;
  mesh.cp = 2;
  mesh.dp = 4;
  mesh.pp = 5;
  std::set<int64_t> seen;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const Coordinates at = coordinates(mesh, rank);
    EXPECT_EQ(rank_of(mesh, at), rank);
    seen.insert(((at.tp * 100 + at.cp) * 100 + at.dp) * 100 + at.pp);
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), mesh.world());
  EXPECT_EQ(coordinates(mesh, 1), (Coordinates{1, 0, 0, 0}));
  EXPECT_EQ(coordinates(mesh, mesh.world() - 1), (Coordinates{2, 1, 3, 4}));
}

TEST(Mesh, ReplicasOfDenseAndExpertParameters) {
  Mesh mesh;
  mesh.dp = 8;
  mesh.cp = 2;
  mesh.ep = 4;
  EXPECT_EQ(replicas(mesh), 16);
  EXPECT_EQ(replicas(mesh, true), 4);
}

TEST(Mesh, StagesPartitionTheLayers) {
  for (const int64_t layers : {12, 61, 126, 128}) {
    for (const int64_t pp : {1, 2, 3, 5, 12}) {
      for (const int64_t vpp : {1, 2, 4}) {
        Mesh mesh;
        mesh.pp = pp;
        mesh.vpp = vpp;
        if (mesh.virtual_stages() > layers) continue;
        int64_t next = 0;
        int64_t fewest = layers;
        int64_t most = 0;
        for (int64_t stage = 0; stage < mesh.virtual_stages(); ++stage) {
          const LayerRange range = stage_layers(mesh, layers, stage);
          EXPECT_EQ(range.first, next);
          next += range.count;
          fewest = std::min(fewest, range.count);
          most = std::max(most, range.count);
        }
        EXPECT_EQ(next, layers);
        EXPECT_GE(fewest, 1);
        EXPECT_LE(most - fewest, 1);
      }
    }
  }
}

// Llama 3, section 3.3.2: one layer less on the first and on the last stage.
TEST(Mesh, Llama405BOn16Stages) {
  Mesh mesh;
  mesh.pp = 16;
  EXPECT_EQ(stage_layers(mesh, 126, 0), (LayerRange{0, 7}));
  EXPECT_EQ(stage_layers(mesh, 126, 1), (LayerRange{7, 8}));
  EXPECT_EQ(stage_layers(mesh, 126, 14), (LayerRange{111, 8}));
  EXPECT_EQ(stage_layers(mesh, 126, 15), (LayerRange{119, 7}));
}

}  // namespace
}  // namespace tutti::spec
