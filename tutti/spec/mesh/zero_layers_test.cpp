#include "tutti/spec/mesh/zero_layers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

Recipe small(const char* name, const Mesh& mesh) {
  Recipe recipe;
  recipe.model = preset(name);
  recipe.model.layers = 5;
  recipe.model.hidden = 40;
  recipe.model.heads = recipe.model.kv_heads = 2;
  recipe.model.head_dim = 20;
  recipe.model.ffn = 72;
  recipe.model.vocabulary = 99;
  recipe.model.context = 16;
  if (recipe.model.moe.experts > 0) recipe.model.moe.expert_ffn = 24;
  recipe.parallel = mesh;
  recipe.batch = {mesh.dp * mesh.pp, 1, 16};
  recipe.precision = Precision::bf16;
  return recipe;
}

ParamTable table_of(const Recipe& recipe) {
  return param_table(recipe.model, recipe.lora, 64 * recipe.parallel.tp);
}

std::vector<Recipe> recipes() {
  std::vector<Recipe> out;
  for (const int64_t zero : {2, 3}) {
    for (const char* name : {"gpt2-124m", "llama3.1-8b", "mixtral-8x7b"}) {
      for (Mesh mesh : {Mesh{.dp = 2}, Mesh{.dp = 3, .tp = 2}, Mesh{.dp = 2, .pp = 2, .cp = 3},
                        Mesh{.dp = 2, .pp = 2, .vpp = 2}, Mesh{.dp = 5, .pp = 3},
                        Mesh{.dp = 4, .ep = 2}, Mesh{.dp = 2, .cp = 2, .ep = 4}}) {
        mesh.zero = zero;
        Recipe recipe = small(name, mesh);
        if (mesh.ep > 1 && recipe.model.moe.experts == 0) continue;
        out.push_back(recipe);
        if (recipe.model.moe.experts > 0) continue;
        recipe.lora = {4, 8, 0, {"qkv", "mlp"}};
        out.push_back(recipe);
      }
    }
  }
  return out;
}

int64_t elements(const MemoryMap& map, const std::string& arena, const std::string& slot) {
  for (const SlotPlan& plan : map.arena(arena).slots) {
    if (plan.name == slot) return plan.tensors.front().shape.front();
  }
  return 0;
}

TEST(ZeroLayers, EveryElementHasOneLayerAndPartsDivideEqually) {
  for (const Recipe& recipe : recipes()) {
    const Mesh& mesh = recipe.parallel;
    for (int64_t rank = 0; rank < mesh.world(); ++rank) {
      const ParamLayout layout = param_layout(table_of(recipe), mesh, coordinates(mesh, rank));
      std::vector<int> times(static_cast<size_t>(layout.elements));
      for (const ZeroLayer& layer : zero_layers(layout, mesh)) {
        int64_t next = -1;
        for (const LayerPart& part : layer.parts) {
          EXPECT_GT(part.first, next);
          next = part.first;
          EXPECT_EQ(part.count % (kParamAlignment * part.ways), 0);
          EXPECT_EQ(part.in_gradients >= 0, part.trainable);
          EXPECT_EQ(part.in_gathered >= 0, part.ways > 1);
          for (int64_t i = part.first; i < part.first + part.count; ++i) {
            ++times[static_cast<size_t>(i)];
          }
        }
      }
      for (const int count : times) ASSERT_EQ(count, 1);
      for (const Bucket& bucket : weight_buckets(layout, mesh, 1000)) {
        int found = 0;
        for (const ZeroLayer& layer : zero_layers(layout, mesh)) {
          const LayerPart* part = layer.part_of(bucket.first);
          if (part == nullptr) continue;
          ++found;
          EXPECT_LE(bucket.first + bucket.count, part->first + part->count);
          EXPECT_EQ(bucket.ways, part->ways);
          EXPECT_EQ(bucket.trainable, part->trainable);
        }
        EXPECT_EQ(found, 1);
      }
    }
  }
}

TEST(ZeroLayers, SumsWithoutNamesAreTheSame) {
  for (const Recipe& recipe : recipes()) {
    const Mesh& mesh = recipe.parallel;
    for (int64_t rank = 0; rank < mesh.world(); ++rank) {
      const Coordinates at = coordinates(mesh, rank);
      SCOPED_TRACE(fmt::format("{} lora {} dp {} tp {} pp {} vpp {} cp {} ep {} zero {} rank {}",
                               recipe.model.name, recipe.lora.rank, mesh.dp, mesh.tp, mesh.pp,
                               mesh.vpp, mesh.cp, mesh.ep, mesh.zero, rank));
      const ParamLayout layout = param_layout(table_of(recipe), mesh, at);
      const ZeroSizes sizes = zero_sizes(table_of(recipe), recipe, at.pp);
      EXPECT_EQ(sizes.shared, layout.expert_offset);
      EXPECT_EQ(sizes.trainable(), layout.trainable_elements);
      EXPECT_EQ(sizes.elements(), layout.elements);

      const MemoryMap map = memory_map(recipe, tutti_profile(), at.pp);
      const std::vector<ShardSlice> owned = owned_slices(layout, mesh, at, 1000);
      const int64_t shard = owned.back().shard_first + owned.back().count;
      EXPECT_EQ(elements(map, "gradients", "flat"), shard);
      EXPECT_EQ(elements(map, "moment1", "flat"), shard);
      EXPECT_EQ(elements(map, "master", "flat"), shard);
      const std::vector<ShardSlice> weights = weight_slices(layout, mesh, at, 1000);
      EXPECT_EQ(elements(map, "weights", "flat"),
                weights.back().shard_first + weights.back().count);

      std::map<std::string, int64_t> gathered;
      std::map<std::string, int64_t> gradients;
      for (const ZeroLayer& layer : zero_layers(layout, mesh)) {
        gathered[layer.slot] = std::max(gathered[layer.slot], layer.gathered);
        gradients[layer.slot] = std::max(gradients[layer.slot], layer.gradients);
      }
      for (const char* slot : {"block", "outer"}) {
        EXPECT_EQ(elements(map, "layer_gradients", slot), gradients[slot]);
        if (mesh.zero == 3) {
          EXPECT_EQ(elements(map, "gathered", slot), gathered[slot]);
        }
      }
    }
  }
}

// What a step gathers with ZeRO 3: every layer of a chunk in the forward pass, its blocks in the
// backward pass.
TEST(ZeroLayers, TheProgramGathersEveryLayer) {
  for (const Recipe& recipe : recipes()) {
    const Mesh& mesh = recipe.parallel;
    if (mesh.zero != 3 || mesh.vpp > 1) continue;
    const Program program = make_program(recipe, tutti_profile());
    for (int64_t stage = 0; stage < mesh.pp; ++stage) {
      const ParamLayout layout = param_layout(table_of(recipe), mesh, {.pp = stage});
      double forward = 0;
      double backward = 0;
      for (const ZeroLayer& layer : zero_layers(layout, mesh)) {
        forward += 2.0 * static_cast<double>(layer.gathered);
        if (layer.layer >= 0) backward += 2.0 * static_cast<double>(layer.gathered);
      }
      const auto sum = [](const std::vector<Op>& ops) {
        double bytes = 0;
        for (const Op& op : ops) bytes += op.bytes;
        return bytes;
      };
      const StageProgram& chunk = program.stages[static_cast<size_t>(stage)];
      EXPECT_EQ(sum(chunk.gather), forward);
      EXPECT_EQ(sum(chunk.gather_backward), backward);
    }
  }
}

// Where first and last stage both have the token table, the same ranks own the same elements of it.
TEST(ZeroLayers, StagesDivideATiedTableAlike) {
  const Mesh mesh = {.dp = 3, .pp = 2, .zero = 2};
  const Recipe recipe = small("gpt2-124m", mesh);
  const auto slices = [&](const Coordinates& at) {
    const ParamLayout layout = param_layout(table_of(recipe), mesh, at);
    const PlacedParam& table = layout.find("embedding.token.weight");
    std::vector<int64_t> out;
    for (const Bucket& bucket : buckets(layout, mesh, 1000)) {
      const int64_t first = bucket.first - table.element_offset;
      if (first >= 0 && first < table.shard.count()) {
        out.insert(out.end(), {first, bucket.slice()});
      }
    }
    return out;
  };
  EXPECT_FALSE(slices({.pp = 0}).empty());
  EXPECT_EQ(slices({.pp = 0}), slices({.pp = 1}));
}

// Bytes per parameter in bf16 on D ranks, besides what layers take turns in (Rajbhandari et al.
// 2020, with gradients in f32).
TEST(ZeroLayers, ArenasShrinkAsTheFormulasSay) {
  Recipe recipe;
  recipe.model = preset("gpt2-124m");
  recipe.precision = Precision::bf16;
  const auto bytes_per_parameter = [&](int64_t dp, int64_t zero) {
    recipe.parallel = {.dp = dp, .zero = zero};
    recipe.batch = {dp, 1, 64};
    const MemoryMap map = memory_map(recipe);
    double bytes = 0;
    for (const char* arena : {"weights", "master", "gradients", "moment1", "moment2"}) {
      bytes += static_cast<double>(map.arena(arena).bytes);
    }
    return bytes / static_cast<double>(param_table(recipe.model).count());
  };
  for (const int64_t dp : {2, 4, 8, 64}) {
    const auto ranks = static_cast<double>(dp);
    EXPECT_NEAR(bytes_per_parameter(dp, 0), 18, 0.02);
    EXPECT_NEAR(bytes_per_parameter(dp, 1), 6 + 12 / ranks, 0.02);
    EXPECT_NEAR(bytes_per_parameter(dp, 2), 2 + 16 / ranks, 0.02);
    EXPECT_NEAR(bytes_per_parameter(dp, 3), 18 / ranks, 0.02);
  }
}

}  // namespace
}  // namespace tutti::spec
