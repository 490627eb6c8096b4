#include "tutti/spec/mesh/zero.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

ModelConfig odd_model(bool experts) {
  ModelConfig model = preset(experts ? "mixtral-8x7b" : "gpt2-124m");
  model.layers = 3;
  model.hidden = 40;
  model.heads = model.kv_heads = 2;
  model.head_dim = 20;
  model.ffn = 72;
  model.vocabulary = 99;
  model.context = 16;
  if (experts) model.moe.expert_ffn = 24;
  return model;
}

TEST(Zero, BucketsCoverTheTrainableElementsOnceAndShardsAreEqual) {
  for (const bool experts : {false, true}) {
    const ParamTable table = param_table(odd_model(experts));
    for (const Mesh mesh :
         {Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 2, .pp = 2, .cp = 3, .zero = 2}, Mesh{.dp = 4},
          Mesh{.dp = 4, .ep = 2, .zero = 1}, Mesh{.dp = 2, .cp = 2, .ep = 4, .zero = 1}}) {
      if (mesh.ep > 1 && !experts) continue;
      for (const int64_t size : {1, 1000, 1 << 20}) {
        const ParamLayout layout = param_layout(table, mesh, {});
        int64_t next = 0;
        int64_t shard = 0;
        for (const Bucket& bucket : buckets(layout, mesh, size)) {
          EXPECT_EQ(bucket.first, next);
          EXPECT_EQ(bucket.shard_first, shard);
          EXPECT_EQ(bucket.expert, bucket.first >= layout.expert_offset);
          EXPECT_EQ(bucket.ways, replicas(mesh, bucket.expert));
          EXPECT_TRUE(mesh.zero == 0 || bucket.slice() * bucket.ways == bucket.count);
          shard += mesh.zero >= 1 ? bucket.slice() : bucket.count;
          next += bucket.count;
        }
        EXPECT_EQ(next, layout.trainable_elements);

        // Over the ranks that hold the same parameters, slices are disjoint and complete.
        std::vector<int> owners(static_cast<size_t>(layout.trainable_elements));
        for (int64_t rank = 0; rank < mesh.dp * mesh.cp; ++rank) {
          const Coordinates at = {0, rank % mesh.cp, rank / mesh.cp, 0};
          EXPECT_EQ(replica_rank(mesh, at), rank);  // as the group of both axes numbers them
          for (const ShardSlice& slice : owned_slices(layout, mesh, at, size)) {
            EXPECT_LE(slice.shard_first + slice.count, shard);
            for (int64_t i = slice.first; i < slice.first + slice.count; ++i) {
              ++owners[static_cast<size_t>(i)];
            }
          }
        }
        for (int64_t i = 0; i < layout.trainable_elements; ++i) {
          // Without ZeRO every rank owns everything; experts are held by ep times fewer ranks.
          const int64_t expected = mesh.zero == 0              ? mesh.dp * mesh.cp
                                   : i >= layout.expert_offset ? mesh.ep
                                                               : 1;
          ASSERT_EQ(owners[static_cast<size_t>(i)], expected) << i;
        }
      }
    }
  }
}

// Layer 0 is computed last: nothing that is complete before it waits for it.
TEST(Zero, OnlyTheLastBucketsHoldTheLastLayer) {
  const ParamTable table = param_table(odd_model(false));
  for (const Mesh mesh : {Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 4}}) {
    const ParamLayout layout = param_layout(table, mesh, {});
    int64_t last = layout.expert_offset;
    for (const PlacedParam& placed : layout.params) {
      if (layer_number(placed.name) == 0) last = std::min(last, placed.element_offset);
    }
    const int64_t unit = kParamAlignment * (mesh.zero >= 1 ? replicas(mesh) : 1);
    for (const int64_t size : {int64_t{2000}, layout.expert_offset - 1}) {
      bool starts_there = false;
      for (const Bucket& bucket : buckets(layout, mesh, size)) {
        starts_there = starts_there || (bucket.first <= last && last < bucket.first + unit);
      }
      EXPECT_TRUE(starts_there) << size;
    }
    EXPECT_EQ(buckets(layout, mesh, layout.expert_offset).size(), 1U);
  }
}

TEST(Zero, ArenasAreAsLargeAsTheMapSays) {
  for (const bool experts : {false, true}) {
    for (const Mesh mesh :
         {Mesh{.dp = 3, .zero = 1}, Mesh{.dp = 5, .pp = 3, .zero = 1},
          Mesh{.dp = 4, .ep = 2, .zero = 1}, Mesh{.dp = 4, .tp = 2, .ep = 2, .zero = 1}}) {
      if (mesh.ep > 1 && !experts) continue;
      Recipe recipe;
      recipe.model = odd_model(experts);
      recipe.parallel = mesh;
      recipe.batch = {mesh.dp, 1, 16};
      recipe.precision = Precision::bf16;
      const ParamTable table = param_table(recipe.model, 64 * mesh.tp);
      for (int64_t rank = 0; rank < mesh.world(); ++rank) {
        const Coordinates at = coordinates(mesh, rank);
        const ParamLayout layout = param_layout(table, mesh, at);
        const MemoryMap map = memory_map(recipe, tutti_profile(), at.pp);
        const auto elements = [&](const char* arena) {
          return map.arena(arena).slot("flat").tensor("flat").shape.front();
        };
        SCOPED_TRACE(fmt::format("experts {} dp {} tp {} pp {} ep {} rank {}", experts, mesh.dp,
                                 mesh.tp, mesh.pp, mesh.ep, rank));
        EXPECT_EQ(elements("weights"), layout.elements);
        EXPECT_EQ(elements("gradients"), layout.trainable_elements);
        const std::vector<ShardSlice> slices = owned_slices(layout, mesh, at, 1000);
        EXPECT_EQ(elements("moment1"), slices.back().shard_first + slices.back().count);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::spec
