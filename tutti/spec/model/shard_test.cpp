#include "tutti/spec/model/shard.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

ModelConfig small_model(const char* name) {
  ModelConfig model = preset(name);
  model.kv_heads = model.kv_heads < model.heads ? 2 : 8;
  model.layers = 4;
  model.hidden = 64;
  model.heads = 8;
  model.head_dim = 8;
  model.ffn = 96;
  model.vocabulary = 321;
  model.context = 16;
  if (model.moe.experts > 0) {
    model.moe.experts = 8;
    model.moe.expert_ffn = 32;
  }
  return model;
}

Recipe recipe_over(const ModelConfig& model, const Mesh& mesh) {
  Recipe recipe;
  recipe.model = model;
  recipe.batch = {8, 1, 16};
  recipe.parallel = mesh;
  return recipe;
}

constexpr int64_t kVocabularyMultiple = 64 * 8;

// How often each element of each parameter is held by the ranks of one data-parallel coordinate; of
// replicated elements the first copy counts.
void expect_every_element_once(const ModelConfig& model, const Mesh& mesh) {
  const ParamTable table = param_table(model, kVocabularyMultiple);
  std::map<std::string, std::vector<int>> held;
  for (const PlacedParam& placed : param_layout(table).params) {
    held[placed.name].resize(static_cast<size_t>(placed.param.count()));
  }
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const Coordinates at = coordinates(mesh, rank);
    if ((at.dp * mesh.cp + at.cp) / mesh.ep > 0) continue;
    const bool first_of_experts = (at.dp * mesh.cp + at.cp) % mesh.ep == 0;
    for (const PlacedParam& placed : param_layout(table, mesh, at).params) {
      const bool copied_table = placed.name == "embedding.token.weight" && at.pp > 0;
      if (copied_table || (!placed.param.expert && !first_of_experts)) continue;
      std::vector<int>& counts = held.at(placed.name);
      int64_t local = 0;
      visit_runs(placed.param, placed.shard, [&](const ShardRun& run) {
        EXPECT_GE(run.local_first, local);
        local = run.local_first + run.count;
        if (run.copy > 0) return;
        for (int64_t i = 0; i < run.count; ++i) {
          ++counts.at(static_cast<size_t>(run.global_first + i));
        }
      });
      EXPECT_LE(local, placed.shard.count());
    }
  }
  for (const auto& [name, counts] : held) {
    for (const int count : counts) {
      ASSERT_EQ(count, 1) << name;
    }
  }
}

TEST(ParamShard, EveryElementIsHeldByOneRankOrItsCopies) {
  for (const char* name : {"gpt2-124m", "llama3.1-8b", "mixtral-8x7b"}) {
    const ModelConfig model = small_model(name);
    for (const Mesh mesh : {Mesh{}, Mesh{.tp = 2}, Mesh{.tp = 4}, Mesh{.tp = 8}, Mesh{.pp = 4},
                            Mesh{.dp = 2, .tp = 2, .pp = 2}, Mesh{.tp = 2, .pp = 2, .vpp = 2},
                            Mesh{.dp = 2, .pp = 3}}) {
      SCOPED_TRACE(std::string(name) + " tp " + std::to_string(mesh.tp) + " pp " +
                   std::to_string(mesh.pp));
      expect_every_element_once(model, mesh);
    }
    if (model.moe.experts == 0) continue;
    expect_every_element_once(model, {.dp = 4, .ep = 4});
    expect_every_element_once(model, {.dp = 4, .tp = 2, .pp = 2, .ep = 2});
    expect_every_element_once(model, {.dp = 2, .cp = 2, .ep = 4});
  }
}

// The arenas of the memory map hold exactly the layout.
TEST(ParamShard, LayoutsHaveTheSizeOfTheMemoryMap) {
  for (const char* name : {"gpt2-124m", "llama3.1-8b", "mixtral-8x7b"}) {
    const ModelConfig model = small_model(name);
    for (const Mesh mesh : {Mesh{}, Mesh{.tp = 4}, Mesh{.tp = 8, .pp = 2}, Mesh{.pp = 4},
                            Mesh{.dp = 2, .tp = 2, .pp = 2, .vpp = 2, .ep = 2}}) {
      if (mesh.ep > 1 && model.moe.experts == 0) continue;
      const Recipe recipe = recipe_over(model, mesh);
      const ParamTable table = param_table(model, kVocabularyMultiple);
      for (int64_t rank = 0; rank < mesh.world(); ++rank) {
        const Coordinates at = coordinates(mesh, rank);
        const ParamLayout layout = param_layout(table, mesh, at);
        const LocalElements local = local_elements(table, recipe, at.pp);
        EXPECT_EQ(layout.elements, local.total()) << name << " rank " << rank;
        EXPECT_EQ(layout.elements - layout.expert_offset, mesh.ep > 1 ? local.expert : 0);
      }
    }
  }
}

// Queries, keys and values: every rank has rows of each; if there are more ranks than key/value
// heads, two neighbours hold the same head.
TEST(ParamShard, KeyValueHeadsAreSplitApartFromQueries) {
  ModelConfig model = small_model("llama3.1-8b");
  ASSERT_EQ(model.kv_heads, 2);
  const ParamTable table = param_table(model, kVocabularyMultiple);
  const Mesh mesh{.tp = 4};
  const ParamLayout layout = param_layout(table, mesh, {.tp = 3});
  const PlacedParam& qkv = layout.find("blocks.0.attention.qkv.weight");
  EXPECT_EQ(qkv.shard.shape, (std::vector<int64_t>{16 + 8 + 8, 64}));
  EXPECT_EQ(
      qkv.shard.ranges,
      (std::vector<ShardRange>{{0, 48, 16, 1, 0}, {16, 64 + 8, 8, 2, 1}, {24, 80 + 8, 8, 2, 1}}));
  const PlacedParam& up = layout.find("blocks.0.mlp.gate_up.weight");
  EXPECT_EQ(up.shard.ranges, (std::vector<ShardRange>{{0, 72, 24, 1, 0}, {24, 96 + 72, 24, 1, 0}}));
  const PlacedParam& down = layout.find("blocks.0.mlp.down.weight");
  EXPECT_EQ(down.shard.shape, (std::vector<int64_t>{64, 24}));
  // The last rows of a padded vocabulary are on the last rank, which has only padding here.
  const PlacedParam& tokens = layout.find("embedding.token.weight");
  EXPECT_EQ(tokens.shard.shape[0], 128);
  EXPECT_TRUE(tokens.shard.ranges.empty());
}

TEST(ParamShard, OneRankHoldsEveryParameterInOneBox) {
  for (const char* name : {"gpt2-124m", "llama3.1-8b", "mixtral-8x7b"}) {
    const ParamTable table = param_table(small_model(name));
    for (const PlacedParam& placed : param_layout(table).params) {
      int boxes = 0;
      visit_boxes(placed.param, placed.shard, 0, placed.shard.count(), [&](const ShardBox& box) {
        ++boxes;
        EXPECT_EQ(box.shape, placed.param.shape) << placed.name;
      });
      EXPECT_EQ(boxes, 1) << placed.name;
    }
  }
}

// So that each copy is saved once.
TEST(ParamShard, BoxesNumberTheRanksThatHoldThem) {
  ModelConfig model = small_model("llama3.1-8b");
  model.heads = 4;
  model.kv_heads = 2;
  const ParamTable table = param_table(model, kVocabularyMultiple);
  const Mesh mesh{.tp = 4};
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    const ParamLayout layout = param_layout(table, mesh, coordinates(mesh, rank));
    const auto copies = [&](const char* name) {
      const PlacedParam& placed = layout.find(name);
      std::vector<int64_t> found;
      visit_boxes(placed.param, placed.shard, 0, placed.shard.count(),
                  [&](const ShardBox& box) { found.push_back(box.copy); });
      return found;
    };
    EXPECT_EQ(copies("blocks.0.norm1.weight"), (std::vector<int64_t>{rank}));
    EXPECT_EQ(copies("blocks.0.attention.output.weight"), (std::vector<int64_t>{0}));
    EXPECT_EQ(copies("blocks.0.attention.qkv.weight"),
              (std::vector<int64_t>{0, rank % 2, rank % 2}));  // query, key and value rows
  }
}

// Boxes of any range contain the same elements as the runs.
TEST(ParamShard, BoxesOfAnyRangeEqualItsRuns) {
  const ModelConfig model = small_model("mixtral-8x7b");
  const ParamTable table = param_table(model, kVocabularyMultiple);
  const Mesh mesh{.dp = 2, .tp = 4, .ep = 2};
  uint64_t state = 7;
  for (int64_t rank = 0; rank < mesh.world(); ++rank) {
    for (const PlacedParam& placed : param_layout(table, mesh, coordinates(mesh, rank)).params) {
      const int64_t size = placed.shard.count();
      std::vector<int64_t> global(static_cast<size_t>(size), -1);
      visit_runs(placed.param, placed.shard, [&](const ShardRun& run) {
        for (int64_t i = 0; i < run.count; ++i) {
          global[static_cast<size_t>(run.local_first + i)] = run.global_first + i;
        }
      });
      for (int trial = 0; trial < 6; ++trial) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        int64_t first = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(size));
        int64_t end = first + 1 + static_cast<int64_t>((state >> 20) % static_cast<uint64_t>(size));
        if (trial == 0) first = 0;
        if (trial == 0 || end > size) end = size;
        std::vector<int64_t> boxed(static_cast<size_t>(size), -1);
        int64_t boxes = 0;
        visit_boxes(placed.param, placed.shard, first, end - first, [&](const ShardBox& box) {
          ++boxes;
          int64_t elements = 1;
          for (const int64_t extent : box.shape) elements *= extent;
          for (int64_t i = 0; i < elements; ++i) {
            int64_t index = 0;
            int64_t rest = i;
            int64_t stride = elements;
            for (size_t d = 0; d < box.shape.size(); ++d) {
              stride /= box.shape[d];
              index = index * placed.param.shape[d] + box.offset[d] + rest / stride;
              rest %= stride;
            }
            boxed.at(static_cast<size_t>(box.local_first + i)) = index;
          }
        });
        EXPECT_LE(boxes, 30) << placed.name;
        for (int64_t i = 0; i < size; ++i) {
          const bool inside = i >= first && i < end;
          ASSERT_EQ(boxed[static_cast<size_t>(i)], inside ? global[static_cast<size_t>(i)] : -1)
              << placed.name << " element " << i << " of [" << first << ", " << end << ")";
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::spec
