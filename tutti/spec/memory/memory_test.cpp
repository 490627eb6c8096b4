#include "tutti/spec/memory/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tutti/spec/mesh/zero.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/schedule/schedule.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

// Every tensor of every slot is aligned, inside its slot and after the previous one; slots and
// arenas have exactly the size of their contents.
void expect_sound(const MemoryMap& map) {
  int64_t total = 0;
  for (const ArenaPlan& arena : map.arenas) {
    int64_t end = 0;
    for (const SlotPlan& slot : arena.slots) {
      EXPECT_EQ(slot.offset_bytes, end) << arena.name;
      EXPECT_EQ(slot.offset_bytes % 256, 0);
      EXPECT_EQ(slot.stride_bytes % 256, 0);
      EXPECT_GE(slot.repeats, 1);
      int64_t inside = 0;
      for (const TensorPlan& tensor : slot.tensors) {
        EXPECT_EQ(tensor.offset_bytes % 256, 0) << tensor.name;
        EXPECT_GE(tensor.offset_bytes, inside) << tensor.name;
        EXPECT_LT(tensor.offset_bytes - inside, 256) << tensor.name;
        int64_t bytes = dtype_bytes(tensor.dtype);
        for (const int64_t size : tensor.shape) bytes *= size;
        EXPECT_EQ(tensor.bytes, bytes) << tensor.name;
        EXPECT_GT(bytes, 0) << tensor.name;
        inside = tensor.offset_bytes + tensor.bytes;
      }
      EXPECT_LE(inside, slot.stride_bytes);
      end += slot.repeats * slot.stride_bytes;
    }
    EXPECT_EQ(arena.bytes, end) << arena.name;
    total += arena.bytes;
  }
  EXPECT_EQ(map.total_bytes(), total);
}

TEST(MemoryMap, Gpt2OnOneRank) {
  const Recipe recipe = recipe_of("gpt2-124m", {"batch.global=4", "batch.sequence=64"});
  const MemoryMap map = memory_map(recipe);
  expect_sound(map);
  const int64_t elements = param_layout(param_table(recipe.model)).elements;
  EXPECT_EQ(map.arena("weights").bytes, 2 * elements);
  for (const char* name : {"master", "gradients", "moment1", "moment2"}) {
    EXPECT_EQ(map.arena(name).bytes, 4 * elements) << name;
  }

  const MemoryMap bare = memory_map(
      recipe_of("gpt2-124m", {"batch.global=4", "batch.sequence=64", "optimizer.master=none"}));
  EXPECT_FALSE(bare.has("master"));
  EXPECT_EQ(map.total_bytes() - bare.total_bytes(), 4 * elements);

  const int64_t n = 256;
  const SlotPlan& block = map.arena("activations").slot("block");
  EXPECT_EQ(block.repeats, 12);
  const auto expect = [](const SlotPlan& slot, const char* name, DType dtype,
                         const std::vector<int64_t>& shape) {
    const TensorPlan& tensor = slot.tensor(name);
    EXPECT_EQ(tensor.dtype, dtype) << name;
    EXPECT_EQ(tensor.shape, shape) << name;
  };
  std::vector<std::string> names;
  for (const TensorPlan& tensor : block.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"residual_in", "norm1.mean", "norm1.rstd", "norm1.y",
                                             "attention.qkv", "attention.lse", "attention.out",
                                             "residual_mid", "norm2.mean", "norm2.rstd", "norm2.y",
                                             "mlp.pre", "mlp.act"}));
  expect(block, "residual_in", DType::f32, {n, 768});
  expect(block, "norm1.mean", DType::f32, {n});
  expect(block, "norm1.y", DType::bf16, {n, 768});
  expect(block, "attention.qkv", DType::bf16, {n, 3 * 768});
  expect(block, "attention.lse", DType::f32, {n * 12});
  expect(block, "mlp.pre", DType::bf16, {n, 4 * 768});
  const SlotPlan& step = map.arena("workspace").slot("step");
  expect(step, "d_residual", DType::f32, {n, 768});
  expect(step, "d_act", DType::bf16, {n, 4 * 768});
  expect(step, "delta", DType::f32, {n * 12});
  EXPECT_EQ(step.tensors.size(), 11U);  // neither d_pre nor rope.frequency
  expect(map.arena("loss").slot("chunk"), "logits", DType::f32, {n, 50304});
  expect(map.arena("loss").slot("rows"), "loss", DType::f32, {n});
  EXPECT_EQ(map.arena("batch").slot("batch").repeats, 2);
}

TEST(MemoryMap, LlamaInF32) {
  const Recipe recipe = recipe_of(
      "llama3.1-8b", {"precision=f32", "model.layers=2", "batch.global=1", "batch.sequence=64"});
  const MemoryMap map = memory_map(recipe);
  expect_sound(map);
  EXPECT_FALSE(map.has("master"));
  const SlotPlan& block = map.arena("activations").slot("block");
  EXPECT_EQ(block.tensor("mlp.pre").shape, (std::vector<int64_t>{64, 2 * 14336}));
  EXPECT_EQ(block.tensor("attention.qkv").shape, (std::vector<int64_t>{64, (32 + 16) * 128}));
  const SlotPlan& step = map.arena("workspace").slot("step");
  EXPECT_EQ(step.tensor("d_pre").shape, (std::vector<int64_t>{64, 2 * 14336}));
  EXPECT_EQ(step.tensor("rope.frequency").shape, (std::vector<int64_t>{64}));
}

TEST(MemoryMap, LogitsAreHandledInChunks) {
  const Recipe recipe = recipe_of("gpt2-124m", {"batch.global=4", "batch.sequence=1024"});
  const MemoryMap map = memory_map(recipe);
  const TensorPlan& logits = map.arena("loss").slot("chunk").tensor("logits");
  EXPECT_EQ(logits.shape, (std::vector<int64_t>{640, 50304}));  // 129 MB of 824 MB
  EXPECT_LE(logits.bytes, int64_t{128} << 20);
}

// Workspace of an accelerator's kernels, above all of attention's backward pass.
TEST(MemoryMap, KernelsOfAnAcceleratorAreCounted) {
  constexpr int64_t kMega = int64_t{1} << 20;
  const auto kernels = [](const std::vector<std::string>& settings) {
    std::vector<std::string> all = {"device=cuda", "batch.global=1", "batch.sequence=8192"};
    all.insert(all.end(), settings.begin(), settings.end());
    const Recipe recipe = recipe_of("llama3.1-8b", all);
    const MemoryMap map = memory_map(recipe);
    EXPECT_TRUE(map.arena("kernels").by_stream);
    return map.arena("kernels").bytes;
  };
  EXPECT_FALSE(memory_map(recipe_of("llama3.1-8b", {})).has("kernels"));
  EXPECT_EQ(kernels({"precision=f32"}), 32 * kMega);
  // One key/value head of one sequence: 4 * 8192^2 * 2 of dS, and the gradients of its heads.
  const int64_t one_head = int64_t{4} * 8192 * (8192 * 2 + 4 + 2 * 128 * 4);
  const int64_t grain = 2 * kMega;
  EXPECT_EQ(kernels({}), (one_head + grain - 1) / grain * grain);
  EXPECT_EQ(kernels({"parallel.tp=8"}), kernels({}));
  EXPECT_LT(kernels({"deterministic=false"}), kernels({}));
  EXPECT_LT(kernels({"batch.sequence=1024"}), 520 * kMega);
  EXPECT_GT(kernels({"data.packing=documents"}), kernels({}));
  EXPECT_GT(kernels({"parallel.cp=2", "batch.sequence=16384"}), kernels({}));
}

TEST(MemoryMap, IsSoundForEveryModelMeshAndProfile) {
  const std::vector<std::string> meshes = {
      "{}", "{tp: 2, dp: 2, zero: 1}", "{tp: 4, pp: 2, cp: 2, dp: 2, zero: 2}",
      "{pp: 4, vpp: 2, dp: 2, zero: 3}", "{pp: 4, schedule: zero-bubble}"};
  for (const char* name : {"gpt2-124m", "llama3.1-8b", "mixtral-8x7b", "deepseek-v3"}) {
    for (const std::string& mesh : meshes) {
      for (const char* recompute : {"none", "selective", "full"}) {
        const Recipe recipe =
            recipe_of(name, {"parallel=" + mesh, "batch.global=16", "batch.micro=1",
                             "batch.sequence=1024", std::string("recompute=") + recompute});
        for (const char* profile : {"tutti", "megatron-2022", "megatron-te"}) {
          for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
            SCOPED_TRACE(std::string(name) + mesh + recompute + profile);
            expect_sound(memory_map(recipe, find_profile(profile), stage));
          }
        }
      }
    }
  }
}

TEST(MemoryMap, RecomputationReducesActivations) {
  for (const char* name : {"gpt2-124m", "llama3.1-8b", "mixtral-8x7b", "deepseek-v3"}) {
    for (const char* profile :
         {"tutti", "megatron-2022", "megatron-te", "megatron-te-2.11", "megatron-bridge"}) {
      const auto bytes = [&](const char* recompute) {
        return memory_map(recipe_of(name, {"batch.global=1", "batch.sequence=1024",
                                           std::string("recompute=") + recompute}),
                          find_profile(profile))
            .arena("activations")
            .bytes;
      };
      EXPECT_LT(bytes("selective"), bytes("none")) << name << profile;
      EXPECT_LT(bytes("full"), bytes("selective")) << name << profile;
    }
  }
}

// The sizes that the comment of memory.h states, to the byte.
TEST(MemoryMap, RecomputationFreesTheBytesOfItsParts) {
  constexpr int64_t kRows = 4 * 1024;
  const auto activations = [](const std::string& recompute) {
    return memory_map(recipe_of("gpt2-124m", {"batch.global=4", "recompute=" + recompute}))
        .arena("activations");
  };
  const ArenaPlan plain = activations("none");
  EXPECT_EQ(plain.slot("block").tensor_bytes(), kRows * 27712);
  const std::vector<std::pair<std::string, int64_t>> freed = {
      {"[norms]", 3072}, {"[attention]", 6192},        {"[core]", 1584},
      {"[mlp]", 12288},  {"[activation]", 6144},       {"[mlp, activation]", 12288},
      {"default", 9216}, {"[norms, attention]", 9264}, {"[attention, core]", 6192}};
  for (const auto& [parts, bytes] : freed) {
    SCOPED_TRACE(parts);
    const ArenaPlan arena = activations("{mode: selective, parts: " + parts + "}");
    EXPECT_EQ(arena.slot("block.recomputed").repeats, 12);
    EXPECT_EQ(arena.slot("block.recomputed").tensor_bytes(), kRows * (27712 - bytes));
    EXPECT_EQ(arena.slot("recompute").tensor_bytes(), kRows * bytes);
    EXPECT_EQ(arena.bytes, plain.bytes - 11 * kRows * bytes);
  }
  const ArenaPlan full = activations("full");
  EXPECT_EQ(full.slot("block.recomputed").tensor_bytes(), kRows * 3072);
  EXPECT_EQ(full.slot("recompute").tensor_bytes(), kRows * 24640);
  const ArenaPlan some = activations("{mode: full, layers: 5}");
  EXPECT_EQ(some.slot("block").repeats, 7);
  EXPECT_EQ(some.slot("block.recomputed").repeats, 5);
  EXPECT_EQ(some.bytes, plain.bytes - 4 * kRows * 24640);
  EXPECT_EQ(bytes_freed_by_recompute(recipe_of("gpt2-124m", {"batch.global=4", "recompute=full"})),
            11 * kRows * 24640);
}

// A pipeline has as many slots as the schedule has in-flight micro-batches.
TEST(MemoryMap, PipelinesHoldInFlightMicroBatches) {
  const auto map = [](const std::string& mesh, int64_t stage) {
    return memory_map(recipe_of("gpt2-124m", {"batch.global=8", "batch.micro=1",
                                              "batch.sequence=64", "parallel=" + mesh}),
                      tutti_profile(), stage);
  };
  const auto repeats = [](const MemoryMap& from, const char* arena, const char* slot) {
    for (const SlotPlan& one : from.arena(arena).slots) {
      if (one.name == slot) return one.repeats;
    }
    return int64_t{0};
  };
  for (int64_t stage = 0; stage < 4; ++stage) {
    const MemoryMap plain = map("{pp: 4}", stage);
    EXPECT_EQ(repeats(plain, "activations", "block"), 3 * (4 - stage));
    EXPECT_EQ(repeats(plain, "activations", "head"), stage == 3 ? 1 : 0);
    EXPECT_EQ(repeats(plain, "batch", "batch"), std::max<int64_t>(2, 4 - stage));
    const SlotPlan& boundary = plain.arena("workspace").slot("boundary");
    EXPECT_EQ(boundary.repeats, 2);
    EXPECT_EQ(boundary.tensor_bytes(), 2 * 4 * 64 * 768);

    // ZB-H1: four in-flight micro-batches everywhere, of which stage + 1 wait for their weight
    // gradients; these read [N, H] five times and the query-key-value and feed-forward widths.
    const MemoryMap zero = map("{pp: 4, schedule: zero-bubble}", stage);
    EXPECT_EQ(repeats(zero, "activations", "block"), 3 * 4);
    EXPECT_EQ(repeats(zero, "activations", "head"), stage == 3 ? 4 : 0);
    EXPECT_EQ(repeats(zero, "activations", "delayed"), stage == 0 ? 0 : 3 * (stage + 1));
    if (stage > 0) {
      EXPECT_EQ(zero.arena("activations").slot("delayed").tensor_bytes(),
                64 * 768 * (4 + 3 + 4) * 2);
    }

    const MemoryMap all = map("{pp: 4, schedule: gpipe}", stage);
    EXPECT_EQ(repeats(all, "activations", "block"), 3 * 8);
    EXPECT_EQ(repeats(all, "activations", "head"), stage == 3 ? 8 : 0);
  }
  // Interleaved: p v + p - 1 chunks of one layer and a half, as peak_in_flight_weighted counts.
  EXPECT_EQ(repeats(map("{pp: 4, vpp: 3}", 0), "activations", "block"), 4 * 3 + 3);
}

// Local elements of all tp, pp and ep ranks sum to the model's, with parameters that every tp rank
// holds (norms, router, latent down-projections) counted once.
TEST(LocalElements, AddUpOverTheMesh) {
  for (const char* name : {"llama3.1-8b", "mixtral-8x7b", "deepseek-v3"}) {
    const auto total = [&](const std::string& mesh) {
      const Recipe recipe = recipe_of(
          name, {"batch.global=64", "batch.micro=1", "batch.sequence=1024", "parallel=" + mesh});
      const ParamTable table = param_table(recipe.model, 64 * 8);
      int64_t sum = 0;
      for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
        const LocalElements local = local_elements(table, recipe, stage);
        sum += recipe.parallel.tp * (local.shared + local.expert * recipe.parallel.ep);
      }
      for (const ParamGroup& group : table.groups) {
        for (const Param& param : group.params) {
          if (param.shard_dim >= 0) continue;
          sum -= (recipe.parallel.tp - 1) * group.repeats * align_elements(param.padded_count());
        }
      }
      return sum;
    };
    const int64_t whole = total("{}");
    EXPECT_EQ(total("{pp: 4}"), whole) << name;
    EXPECT_EQ(total("{pp: 4, vpp: 3}"), whole) << name;
    EXPECT_EQ(total("{tp: 8}"), whole) << name;
    EXPECT_EQ(total("{tp: 4, pp: 2, dp: 2, cp: 2}"), whole) << name;
    if (std::string(name) == "llama3.1-8b") continue;
    EXPECT_EQ(total("{dp: 8, ep: 8}"), whole) << name;
    EXPECT_EQ(total("{dp: 4, cp: 2, ep: 8, tp: 2, pp: 2}"), whole) << name;
  }
}

// The fused loss: logits and their gradient overlay memory that layers need later; a buffer for
// each shape of a layer's weights: query-key-value, output, gate and up, down, and an expert's two.
TEST(MemoryMap, FusedLossOverlaysTheWorkspace) {
  const Recipe recipe = recipe_of("llama3.1-8b", {"batch.global=4", "batch.sequence=1024",
                                                  "batch.micro=1", "parallel={tp: 2, pp: 2}"});
  const MemoryMap map = memory_map(recipe, find_profile("megatron-te-2.11"), 1);
  EXPECT_FALSE(map.has("loss"));
  const ArenaPlan& workspace = map.arena("workspace");
  const SlotPlan& step = workspace.slot("step");
  const SlotPlan& loss = workspace.slot("loss");
  EXPECT_EQ(loss.offset_bytes, step.offset_bytes);
  EXPECT_EQ(loss.stride_bytes, 2 * 1024 * 128256 / 2 * 2);
  EXPECT_EQ(workspace.bytes, loss.offset_bytes + std::max(loss.stride_bytes, step.stride_bytes));
  EXPECT_EQ(workspace.slot("weight_gradients").stride_bytes,
            2 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336) / 2);
  const MemoryMap first = memory_map(recipe, find_profile("megatron-te-2.11"), 0);
  EXPECT_EQ(first.arena("workspace").bytes, step.offset_bytes + step.stride_bytes);

  const Recipe routed = recipe_of("mixtral-8x7b", {"batch.global=1", "batch.sequence=1024"});
  EXPECT_EQ(memory_map(routed, find_profile("megatron-te-2.11"))
                .arena("workspace")
                .slot("weight_gradients")
                .tensors.size(),
            5U);  // and the router's
}

// Context parallelism by all-to-all: queries, keys, values and the output, both ways.
TEST(MemoryMap, ExchangedHeadsKeepTheirOutput) {
  const auto kept = [](const char* cp) {
    const Recipe recipe = recipe_of("llama3.1-8b", {"batch.global=1", "batch.sequence=8192",
                                                    std::string("parallel={cp: ") + cp + "}"});
    return memory_map(recipe, find_profile("megatron-te-2.11"))
        .arena("activations")
        .slot("block")
        .stride_bytes;
  };
  EXPECT_EQ(kept("4"), kept("1") / 4 + 2 * 2048 * 4096);
}

// Bytes per parameter of mixed precision (planner): 18 replicated; 6 + 12/D with ZeRO-1; 2 + 16/D
// with ZeRO-2; 18/D with ZeRO-3 plus the gathered layers.
TEST(MemoryMap, ZeroDividesTheState) {
  const double ways = 64;
  const auto bytes_per_parameter = [&](int zero) {
    const Recipe recipe =
        recipe_of("llama3.1-8b", {"batch.global=64", "batch.sequence=1024",
                                  "parallel={dp: 64, zero: " + std::to_string(zero) + "}"});
    const MemoryMap map = memory_map(recipe, find_profile("megatron-te"));
    double bytes = 0;
    for (const char* name : {"weights", "master", "gradients", "moment1", "moment2"}) {
      bytes += static_cast<double>(map.arena(name).bytes);
    }
    EXPECT_EQ(map.has("gathered"), zero == 3);
    return bytes / static_cast<double>(param_table(recipe.model).count());
  };
  EXPECT_NEAR(bytes_per_parameter(0), 18, 1e-3);
  EXPECT_NEAR(bytes_per_parameter(1), 6 + 12 / ways, 1e-3);
  EXPECT_NEAR(bytes_per_parameter(2), 2 + 16 / ways, 1e-3);
  EXPECT_NEAR(bytes_per_parameter(3), 18 / ways, 1e-3);
}

// Korthikanti et al. 2022 (arXiv 2205.05198), Fig. 1: parameters with optimizer state, activations
// with tensor parallelism only, and with sequence parallelism and selective recomputation, of the
// first stage in GiB (as transcribed in calculon-ai/calculon:calculon/llm/validation.py).
struct Published {
  const char* name;
  int64_t layers, hidden, heads, micro, tp, pp, vpp, global;
  double parameters_gib, baseline_gib, selective_gib;
};

class KorthikantiFigure1 : public testing::TestWithParam<Published> {
 protected:
  static Recipe recipe(const char* recompute) {
    const Published& row = GetParam();
    Recipe r = recipe_of("gpt3-175b");
    r.model.layers = row.layers;
    r.model.hidden = row.hidden;
    r.model.heads = row.heads;
    r.model.kv_heads = row.heads;
    r.model.head_dim = row.hidden / row.heads;
    r.model.ffn = 4 * row.hidden;
    r.batch.global = row.global;
    r.batch.micro = row.micro;
    r.parallel.tp = row.tp;
    r.parallel.pp = row.pp;
    r.parallel.vpp = row.vpp;
    r.recompute.mode = std::string(recompute) == "full"        ? RecomputeMode::full
                       : std::string(recompute) == "selective" ? RecomputeMode::selective
                                                               : RecomputeMode::none;
    validate(r);
    return r;
  }

  // Bytes that the in-flight layers keep on the first stage.
  static double kept(const char* recompute, bool sequence_parallel) {
    Profile profile = find_profile("megatron-2022");
    profile.sequence_parallel = sequence_parallel;
    const MemoryMap map = memory_map(recipe(recompute), profile);
    const bool all = std::string(recompute) == "none";
    const SlotPlan& block = map.arena("activations").slot(all ? "block" : "block.recomputed");
    return static_cast<double>(block.repeats * block.tensor_bytes());
  }
};

constexpr double kGib = 1024.0 * 1024 * 1024;

TEST_P(KorthikantiFigure1, ActivationsExactly) {
  EXPECT_DOUBLE_EQ(kept("none", false) / kGib, GetParam().baseline_gib);
  EXPECT_DOUBLE_EQ(kept("selective", true) / kGib, GetParam().selective_gib);
}

// The figure counts the layers' matrices, at 18 bytes each.
TEST_P(KorthikantiFigure1, ParametersAndOptimizerExactly) {
  const Recipe r = recipe("none");
  const MemoryMap map = memory_map(r, find_profile("megatron-2022"));
  double state = 0;
  for (const char* name : {"weights", "master", "gradients", "moment1", "moment2"}) {
    state += static_cast<double>(map.arena(name).bytes);
  }
  const int64_t elements = map.arena("gradients").bytes / 4;
  const double per_parameter = state / static_cast<double>(elements);
  EXPECT_DOUBLE_EQ(per_parameter, 18);

  int64_t matrices = 0;
  for (const ParamGroup& group : param_table(r.model).groups) {
    if (group.prefix != "blocks.") continue;
    for (const Param& param : group.params) {
      if (param.decay) matrices += param.local_count(r.parallel);
    }
  }
  const int64_t layers = r.model.layers / r.parallel.pp;
  EXPECT_DOUBLE_EQ(per_parameter * static_cast<double>(matrices * layers) / kGib,
                   GetParam().parameters_gib);
}

// Fig. 7 of the paper, percent of the tensor-parallel baseline; read off a plot, hence 0.1 points.
TEST_P(KorthikantiFigure1, ReductionsOfFigure7) {
  static const std::map<std::string, std::vector<double>> kPublished = {
      {"gpt-22B", {66.84, 49.42, 16.18, 7.64}},
      {"gpt3-175B", {62.04, 56.53, 18.49, 8.71}},
      {"gpt-530B", {58.31, 62.04, 20.27, 9.42}},
      {"gpt-1T", {58.31, 62.04, 20.27, 9.42}}};
  const std::vector<double>& percent = kPublished.at(GetParam().name);
  const double whole = kept("none", false) / 100;
  EXPECT_NEAR(kept("none", true) / whole, percent[0], 0.2);
  EXPECT_NEAR(kept("selective", false) / whole, percent[1], 0.2);
  EXPECT_NEAR(kept("selective", true) / whole, percent[2], 0.2);
  EXPECT_NEAR(kept("full", false) / whole, percent[3], 0.2);
}

INSTANTIATE_TEST_SUITE_P(Models, KorthikantiFigure1,
                         testing::Values(Published{"gpt-22B", 48, 6144, 64, 4, 8, 1, 1, 4, 45.5625,
                                                   59.25, 9.5625},
                                         Published{"gpt3-175B", 96, 12288, 96, 1, 8, 8, 3, 64,
                                                   45.5625, 66.84375, 12.3515625},
                                         Published{"gpt-530B", 105, 20480, 128, 1, 8, 35, 3, 280,
                                                   31.640625, 114.0234375, 23.076171875},
                                         Published{"gpt-1T", 128, 25600, 160, 1, 8, 64, 1, 512,
                                                   32.958984375, 131.25, 26.5625}));

TEST(MemoryMap, OffloadedStateIsOnTheHostAndPassesThroughBuffers) {
  for (const char* precision : {"precision=bf16", "precision=f32"}) {
    const MemoryMap plain = memory_map(recipe_of("gpt2-124m", {precision}));
    const MemoryMap map = memory_map(recipe_of("gpt2-124m", {precision, "offload.optimizer=true"}));
    int64_t host = 0;
    for (const char* name : {"master", "moment1", "moment2"}) {
      EXPECT_EQ(map.has(name), plain.has(name));
      if (!map.has(name)) continue;
      EXPECT_TRUE(map.arena(name).on_host);
      EXPECT_EQ(map.arena(name).bytes, plain.arena(name).bytes);
      host += map.arena(name).bytes;
    }
    EXPECT_EQ(map.host_bytes(), host);
    const SlotPlan& buffer = map.arena("optimizer_buffers").slot("buffer");
    EXPECT_EQ(buffer.repeats, 2);
    EXPECT_EQ(buffer.tensors.size(), map.has("master") ? 3U : 2U);
    EXPECT_EQ(buffer.tensor("moment1").bytes, kBucketElements * 4);
    EXPECT_EQ(map.total_bytes(), plain.total_bytes() - host + map.arena("optimizer_buffers").bytes);
    const OffloadTraffic traffic =
        offload_traffic(recipe_of("gpt2-124m", {precision, "offload.optimizer=true"}), map);
    EXPECT_EQ(traffic.state_in, host);
    EXPECT_EQ(traffic.state_out, host);
    EXPECT_EQ(traffic.activations_out, 0);
  }
  EXPECT_EQ(offload_buffer_elements(1000), align_elements(250));
}

// Two covered layers of each kind have a slot on the device, the others on the host.
TEST(MemoryMap, OffloadedActivationsShareTwoDeviceSlots) {
  const auto slots = [](const MemoryMap& map, const char* arena, const char* slot) {
    if (!map.has(arena)) return int64_t{0};
    for (const SlotPlan& plan : map.arena(arena).slots) {
      if (plan.name == slot) return plan.repeats;
    }
    return int64_t{0};
  };
  const MemoryMap plain = memory_map(recipe_of("gpt2-124m"));
  const int64_t block = plain.arena("activations").slot("block").stride_bytes;
  for (const auto& [text, leave] : {std::pair("all", 10), std::pair("2", 0), std::pair("5", 3)}) {
    const Recipe recipe =
        recipe_of("gpt2-124m", {std::string("offload.activations=") + text, "batch.global=8"});
    const MemoryMap map = memory_map(recipe);
    const int64_t micro_batches = make_schedule(recipe).micro_batches;
    EXPECT_EQ(slots(map, "activations", "block"), 12 - leave) << text;
    EXPECT_EQ(slots(map, "offloaded_activations", "block"), leave) << text;
    EXPECT_EQ(map.host_bytes(), leave * block) << text;
    EXPECT_EQ(map.total_bytes(), plain.total_bytes() - leave * block) << text;
    EXPECT_EQ(offload_traffic(recipe, map).activations_out, micro_batches * leave * block) << text;
    EXPECT_EQ(offload_traffic(recipe, map).activations_in, micro_batches * leave * block) << text;
  }
  const MemoryMap kinds = memory_map(
      recipe_of("gpt2-124m", {"offload.activations=all", "recompute={mode: full, layers: 5}"}));
  EXPECT_EQ(slots(kinds, "offloaded_activations", "block"), 5);
  EXPECT_EQ(slots(kinds, "offloaded_activations", "block.recomputed"), 3);
  EXPECT_EQ(slots(kinds, "activations", "block.recomputed"), 2);
}

int64_t arena_bytes(const MemoryMap& map, const char* name) {
  return map.has(name) ? map.arena(name).bytes : 0;
}

// Matrices whose update writes mxfp8 are not stored in 16 bits as well.
TEST(MemoryMap, MatricesCanBeStoredInMxfp8Only) {
  const Recipe recipe = recipe_of("llama3.1-8b", {"precision=mxfp8"});
  const Profile& wide = find_profile("megatron-te-2.11");
  const Profile& narrow = find_profile("megatron-bridge");
  const ParamTable table = param_table(recipe.model, recipe.lora, wide.vocabulary_multiple);
  const int64_t matrices = local_elements(narrow_parameters(table), recipe, 0).total();
  EXPECT_GT(matrices, 6'000'000'000);
  EXPECT_EQ(arena_bytes(memory_map(recipe, wide), "weights") -
                arena_bytes(memory_map(recipe, narrow), "weights"),
            2 * matrices);
  EXPECT_EQ(arena_bytes(memory_map(recipe, wide), "narrow"),
            arena_bytes(memory_map(recipe, narrow), "narrow"));
  const Recipe plain = recipe_of("llama3.1-8b");
  EXPECT_EQ(arena_bytes(memory_map(plain, wide), "weights"),
            arena_bytes(memory_map(plain, narrow), "weights"));
}

// DeepSpeed's ZeRO-3 holds one weight at a time, or 1e9 elements, instead of two layers.
TEST(MemoryMap, GatheredWeightsAreBounded) {
  const std::vector<std::string> sharded = {"parallel={dp: 8, zero: 3}", "batch.global=8"};
  const MemoryMap small =
      memory_map(recipe_of("gpt2-124m", sharded), find_profile("megatron-2021"));
  EXPECT_EQ(arena_bytes(small, "gathered"),
            arena_bytes(memory_map(recipe_of("gpt2-124m", sharded), find_profile("megatron-2022")),
                        "gathered"));
  const MemoryMap large =
      memory_map(recipe_of("gpt3-175b", sharded), find_profile("megatron-2021"));
  EXPECT_EQ(arena_bytes(large, "gathered"), 2'000'000'000);  // the layers of 175B: 7.2 GB
}

// Selective recomputation of torchtitan: per row of Llama 3 8B it keeps the input, queries, values,
// the outputs of attention and of the last projection (4,096 each, but the values 1,024) and the
// gate (14,336).
TEST(MemoryMap, EveryOtherProductKeepsItsOutput) {
  const Recipe recipe = recipe_of("llama3.1-8b", {"recompute=selective"});
  const MemoryMap map = memory_map(recipe, find_profile("torchtitan"));
  const SlotPlan& block = map.arena("activations").slot("block.recomputed");
  const int64_t rows = recipe.batch.micro * recipe.batch.sequence;
  const int64_t numbers = 2 + recipe.model.heads;  // of statistics and the attention
  EXPECT_EQ(block.tensor_bytes(), rows * (2 * (4 * 4096 + 1024 + 14336) + 4 * numbers));
}

}  // namespace
}  // namespace tutti::spec
