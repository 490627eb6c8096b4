// What every rank of a mesh allocates: the arenas of its memory map, which shrink with the axes of
// the mesh as the literature says. A GPT of 1.1 million parameters on up to eight ranks.
//   Bytes per parameter of this rank's layers and columns, in bf16 with f32 gradients and Adam
//   (Rajbhandari et al. 2020, section 3.1, with f32 instead of f16 gradients), over D replicas:
//     ZeRO 0: 18   1: 6 + 12/D   2: 2 + 16/D, and buffers of layers   3: 18/D, and buffers
//   Activations of a layer: divided by tp with sequence parallelism (Korthikanti et al. 2022, table
//   2) and by cp. In-flight layers on stage i of p: L/p * min(m, p - i) with m micro-batches, and
//   on the first with v virtual stages L (1 + (p-1)/(p v)) (Narayanan et al. 2021, section 2.2);
//   with a zero bubble L/p * min(m, p) on every stage (ZB-H1, Qi et al. 2024).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/profile.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::MemoryMap;
using spec::Mesh;

spec::Recipe recipe_for(const Mesh& mesh) {
  spec::Recipe recipe = gpt_recipe();
  spec::ModelConfig& model = recipe.model;
  model.layers = 8;
  model.hidden = 96;
  model.heads = model.kv_heads = 8;
  model.head_dim = 12;
  model.ffn = 384;
  model.vocabulary = 1024;
  model.context = 64;
  recipe.precision = spec::Precision::bf16;
  recipe.parallel = mesh;
  recipe.threads = 1;
  recipe.batch = {16 * mesh.dp, 2, 64};
  return recipe;
}

int64_t bytes_of(const MemoryMap& map, std::initializer_list<const char*> arenas) {
  int64_t sum = 0;
  for (const char* name : arenas) sum += map.arena(name).bytes;
  return sum;
}

// Of weights, gradients, master and moments, without the buffers of layers.
double state_bytes(const MemoryMap& map) {
  return static_cast<double>(
      bytes_of(map, {"weights", "gradients", "master", "moment1", "moment2"}));
}

double slot_bytes(const MemoryMap& map, const char* slot) {
  return static_cast<double>(map.arena("activations").slot(slot).tensor_bytes());
}

// Its rank's arenas are those of the map, and all of them.
void expect_allocated(const spec::Recipe& recipe) {
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    const Trainer trainer(recipe, ranks);
    const MemoryMap map = spec::memory_map(recipe, spec::tutti_profile(), ranks.at.pp);
    int64_t bytes = 0;
    for (const spec::ArenaPlan& plan : map.arenas) {
      EXPECT_EQ(trainer.memory().arena(plan.name).bytes(), plan.bytes) << plan.name;
      bytes += plan.bytes;
    }
    EXPECT_EQ(bytes, map.total_bytes());
    EXPECT_EQ(trainer.memory().map().arenas.size(), map.arenas.size());
  });
}

TEST(MeshMemory, ZeroDividesStateByTheReplicas) {
  const double parameters = static_cast<double>(spec::param_table(recipe_for({}).model).count());
  for (const Mesh& base : {Mesh{.dp = 2}, Mesh{.dp = 4}, Mesh{.dp = 2, .cp = 2}, Mesh{.dp = 8}}) {
    const auto replicas = static_cast<double>(base.dp * base.cp);
    const double per_parameter[] = {18, 6 + 12 / replicas, 2 + 16 / replicas, 18 / replicas};
    for (int64_t zero = 0; zero <= 3; ++zero) {
      Mesh mesh = base;
      mesh.zero = zero;
      SCOPED_TRACE(text_of(mesh));
      const spec::Recipe recipe = recipe_for(mesh);
      const MemoryMap map = spec::memory_map(recipe);
      EXPECT_NEAR(state_bytes(map) / parameters / per_parameter[zero], 1, 0.02);
      // What layers take turns in: two blocks and the table, of gradients and with 3 of weights.
      const double live = parameters / 8 * 2 + 1024 * 96 + 64 * 96;
      if (zero >= 2) {
        EXPECT_LT(static_cast<double>(map.arena("layer_gradients").bytes), 4 * live * 1.05);
      }
      if (zero == 3) {
        EXPECT_LT(static_cast<double>(map.arena("gathered").bytes), 2 * live * 1.05);
      }
      if (base.dp * base.cp <= 4) expect_allocated(recipe);
    }
  }
}

TEST(MeshMemory, TensorAndContextRanksDivideLayers) {
  const MemoryMap alone = spec::memory_map(recipe_for({}));
  for (const Mesh& mesh : {Mesh{.tp = 2}, Mesh{.tp = 4}, Mesh{.cp = 2}, Mesh{.cp = 4},
                           Mesh{.tp = 2, .cp = 2}, Mesh{.dp = 2, .tp = 2, .zero = 1}}) {
    SCOPED_TRACE(text_of(mesh));
    const spec::Recipe recipe = recipe_for(mesh);
    const MemoryMap map = spec::memory_map(recipe);
    const auto ways = static_cast<double>(mesh.tp * mesh.cp);
    EXPECT_DOUBLE_EQ(slot_bytes(map, "block") * ways, slot_bytes(alone, "block"));
    EXPECT_EQ(map.arena("activations").slot("block").repeats, 8);
    // All but norms, biases of row-parallel projections and positions, which all tp ranks hold.
    const spec::ParamTable table = spec::param_table(recipe.model, 64 * mesh.tp);
    const auto common =
        static_cast<double>(mesh.tp == 1 ? 0 : spec::common_elements(table, recipe, 0, mesh.tp));
    const auto whole = static_cast<double>(table.count());
    const double share = (whole - common) / static_cast<double>(mesh.tp) + common;
    const double per_parameter = mesh.zero == 1 ? 6 + 12 / static_cast<double>(mesh.dp) : 18;
    EXPECT_NEAR(state_bytes(map) / share / per_parameter, 1, 0.02);
    expect_allocated(recipe);
  }
}

TEST(MeshMemory, StagesHoldTheirLayersTimesMicroBatchesInFlight) {
  const int64_t layers = 8;
  for (const Mesh& mesh :
       {Mesh{.pp = 2}, Mesh{.pp = 4}, Mesh{.pp = 8}, Mesh{.pp = 2, .vpp = 2},
        Mesh{.pp = 4, .vpp = 2}, Mesh{.pp = 4, .pipeline = spec::Pipeline::zero_bubble},
        Mesh{.dp = 2, .pp = 2, .zero = 1}, Mesh{.tp = 2, .pp = 2}}) {
    SCOPED_TRACE(text_of(mesh));
    const spec::Recipe recipe = recipe_for(mesh);
    const int64_t micro_batches = 8;
    double parameters = 0;
    for (int64_t stage = 0; stage < mesh.pp; ++stage) {
      const MemoryMap map = spec::memory_map(recipe, spec::tutti_profile(), stage);
      const int64_t held = map.arena("activations").slot("block").repeats;
      if (mesh.pipeline == spec::Pipeline::zero_bubble) {
        EXPECT_EQ(held, layers / mesh.pp * std::min(micro_batches, mesh.pp));
      } else if (mesh.vpp == 1) {
        EXPECT_EQ(held, layers / mesh.pp * std::min(micro_batches, mesh.pp - stage));
      } else if (stage == 0) {
        const double factor =
            1 + static_cast<double>(mesh.pp - 1) / static_cast<double>(mesh.pp * mesh.vpp);
        EXPECT_EQ(static_cast<double>(held), static_cast<double>(layers) * factor);
      }
      parameters += static_cast<double>(map.arena("weights").bytes) / 2;
    }
    // All stages together hold the model, and the last one the tied table again.
    const double whole = static_cast<double>(spec::param_table(recipe.model).count()) + 1024 * 96;
    EXPECT_NEAR(parameters * static_cast<double>(mesh.tp) / whole, 1, 0.03);
    expect_allocated(recipe);
  }
}

}  // namespace
}  // namespace tutti::train
