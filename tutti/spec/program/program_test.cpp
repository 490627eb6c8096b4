#include "tutti/spec/program/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/model/flops.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

// B2 T4 H6 heads 3 (D2) F24 V10, two layers; N 8 rows, padded vocabulary 64.
constexpr const char* kTinyProgram = R"(
model: {layers: 2, hidden: 6, heads: 3, vocabulary: 10, context: 4}
batch: {global: 2}
)";

struct Expected {
  const char* name;
  std::array<int64_t, 6> dims;
  double flops;
  double bytes;
};

void expect_ops(const std::vector<Op>& ops, const std::vector<Expected>& expected) {
  ASSERT_EQ(ops.size(), expected.size());
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_STREQ(ops[i].name, expected[i].name) << i;
    EXPECT_EQ(ops[i].dims, expected[i].dims) << i << " " << ops[i].name;
    EXPECT_EQ(ops[i].flops, expected[i].flops) << i << " " << ops[i].name;
    EXPECT_EQ(ops[i].first_bytes, expected[i].bytes) << i << " " << ops[i].name;
  }
}

TEST(Program, BlocksOfATinyGptInBf16) {
  const Program program = make_program(parse(kTinyProgram), tutti_profile());
  // Bytes: each operand once; bf16 2, f32 4.
  const double norm = 8 * 6 * 4 + 6 * 2 + 6 * 2 + 8 * 6 * 2 + 2 * 8 * 4;
  const double added = 8 * 6 * 2 + 8 * 6 * 4;
  const double attention = 8 * 18 * 2 + 8 * 6 * 2 + 2 * 3 * 4 * 4;
  expect_ops(program.kind("block").forward,
             {{"norm_forward", {8, 6}, 0, norm + added},
              {"gemm", {8, 18, 6}, 2 * 8 * 18 * 6, (8 * 6 + 6 * 18 + 8 * 18 + 18) * 2},
              {"attention_forward", {2, 4, 3, 3, 2}, 2 * 2 * 3 * 4 * 4 * 2, attention},
              {"gemm", {8, 6, 6}, 2 * 8 * 6 * 6, (8 * 6 + 6 * 6 + 8 * 6 + 6) * 2},
              {"norm_forward", {8, 6}, 0, norm + added},
              {"gemm", {8, 24, 6}, 2 * 8 * 24 * 6, (8 * 6 + 6 * 24 + 8 * 24) * 2},
              {"activation_forward", {8, 24}, 0, (8 * 24 * 2 + 24) * 2},
              {"gemm", {8, 6, 24}, 2 * 8 * 24 * 6, (8 * 24 + 6 * 24 + 8 * 6 + 6) * 2}});
  EXPECT_EQ(program.kind("block.first").forward[0].bytes, norm);

  const double norm_input = 8 * 6 * 2 + 8 * 6 * 4 + 6 * 2 + 2 * 8 * 4 + 2 * 8 * 6 * 4;
  const double branch = 8 * 6 * 2;
  expect_ops(program.kind("block").backward_input,
             {{"gemm", {8, 24, 6}, 2 * 8 * 24 * 6, (8 * 6 + 6 * 24 + 8 * 24) * 2},
              {"activation_backward", {8, 24}, 0, (8 * 24 * 3 + 24) * 2},
              {"gemm", {8, 6, 24}, 2 * 8 * 24 * 6, (8 * 24 + 6 * 24 + 8 * 6) * 2},
              {"norm_backward_input", {8, 6}, 0, norm_input + branch},
              {"gemm", {8, 6, 6}, 2 * 8 * 6 * 6, (8 * 6 + 6 * 6 + 8 * 6) * 2},
              {"attention_backward",
               {2, 4, 3, 3, 2},
               5 * 2 * 3 * 4 * 4 * 2,
               2 * attention + 2 * 8 * 6 * 0},
              {"gemm", {8, 6, 18}, 2 * 8 * 18 * 6, (8 * 18 + 6 * 18 + 8 * 6) * 2},
              {"norm_backward_input", {8, 6}, 0, norm_input + branch}});
  EXPECT_EQ(program.kind("block.first").backward_input.back().bytes, norm_input);

  const double norm_weight = 8 * 6 * 2 + 8 * 6 * 4 + 2 * 8 * 4 + 2 * 6 * 4;
  const auto weight = [](double m, double n) { return (8 * m + 8 * n) * 2 + m * n * 4; };
  const auto sum = [](double columns) { return 8 * columns * 2 + columns * 4; };
  expect_ops(program.kind("block").backward_weight,
             {{"gemm", {6, 24, 8}, 2 * 8 * 24 * 6, weight(6, 24)},
              {"column_sum", {8, 6}, 0, sum(6)},
              {"gemm", {24, 6, 8}, 2 * 8 * 24 * 6, weight(24, 6)},
              {"column_sum", {8, 24}, 0, sum(24)},
              {"norm_backward_weight", {8, 6}, 0, norm_weight},
              {"gemm", {6, 6, 8}, 2 * 8 * 6 * 6, weight(6, 6)},
              {"column_sum", {8, 6}, 0, sum(6)},
              {"gemm", {18, 6, 8}, 2 * 8 * 18 * 6, weight(18, 6)},
              {"column_sum", {8, 18}, 0, sum(18)},
              {"norm_backward_weight", {8, 6}, 0, norm_weight}});
}

TEST(Program, EndsOfATinyGptInF32) {
  const Program program = make_program(parse(kTinyProgram, {"precision=f32"}), tutti_profile());
  expect_ops(program.kind("embedding").forward,
             {{"embedding_forward", {8, 6}, 0, 3 * 8 * 6 * 4 + 8 * 4}});
  // Tied: the token table already contains the head's gradient; the position table is overwritten.
  expect_ops(program.kind("embedding").backward_weight,
             {{"embedding_backward", {8, 6}, 0, 8 * 6 * 4 + 8 * 4 + 4 * 8 * 6 * 4 + 4 * 6 * 4}});
  const double logits = (8 * 6 + 6 * 64 + 8 * 64) * 4;
  std::vector<Op> head = program.kind("head").forward;
  ASSERT_STREQ(head[0].name, "norm_forward");
  head.erase(head.begin());
  expect_ops(head, {{"gemm", {8, 64, 6}, 2 * 8 * 64 * 6, logits},
                    {"cross_entropy", {8, 10}, 0, 8 * 64 * 4 + 8 * 4 + 8 * 4 + 8 * 64 * 4},
                    {"gemm", {8, 6, 64}, 2 * 8 * 64 * 6, logits},
                    {"gemm", {64, 6, 8}, 2 * 8 * 64 * 6, logits}});
  EXPECT_EQ(head[3].bytes, logits + 64 * 6 * 4);   // later micro-batches accumulate
  EXPECT_EQ(head[0].model_flops, 2 * 8 * 10 * 6);  // padding is not model work
  const int64_t elements = param_layout(param_table(parse(kTinyProgram).model)).elements;
  const auto n = static_cast<double>(elements);
  expect_ops(program.updates[0].norm, {{"squared_norm", {elements}, 2 * n, 4 * n + 8}});
  expect_ops(program.updates[0].update, {{"adamw", {elements}, 0, 28 * n}});
}

TEST(Program, UntiedTablesAreOverwrittenFirst) {
  const Program program =
      make_program(parse(kTinyProgram, {"model.tied_embeddings=false"}), tutti_profile());
  const Op& op = program.kind("embedding").backward_weight.back();
  EXPECT_EQ(op.first_bytes - op.bytes, (64 + 4) * 6 * 4);
}

TEST(Program, RopeRotatesQueriesAndKeysInOneCall) {
  const Recipe recipe = recipe_of("llama3.1-8b", {"batch.global=1", "batch.sequence=64"});
  const Program program = make_program(recipe, tutti_profile());
  const auto& forward = program.kind("block").forward;
  ASSERT_STREQ(forward[2].name, "rope");
  EXPECT_EQ(forward[2].dims, (std::array<int64_t, 6>{64, 32 + 8, 128}));
  EXPECT_EQ(forward[2].bytes, 2.0 * 64 * 40 * 128 * 2 + 64 * 4);
  const auto& weight = program.kind("block").backward_weight;
  EXPECT_TRUE(std::none_of(weight.begin(), weight.end(), [](const Op& op) {
    return std::strcmp(op.name, "column_sum") == 0;  // no biases
  }));
}

TEST(Program, DropoutRunsForwardAndBackwardAndNotInEvaluation) {
  const Program program = make_program(parse(kTinyProgram, {"model.dropout=0.1"}), tutti_profile());
  const auto count = [](const std::vector<Op>& ops) {
    return std::count_if(ops.begin(), ops.end(),
                         [](const Op& op) { return std::strcmp(op.name, "dropout") == 0; });
  };
  EXPECT_EQ(count(program.kind("embedding").forward), 1);
  EXPECT_EQ(count(program.kind("embedding").backward_input), 1);
  EXPECT_EQ(count(program.kind("block").forward), 2);
  EXPECT_EQ(count(program.kind("block").backward_input), 2);
  EXPECT_EQ(count(program.kind("block").evaluate), 0);
  EXPECT_EQ(count(program.kind("embedding").evaluate), 0);
}

TEST(Program, LossChunksCoverAllRows) {
  const Recipe recipe = recipe_of("gpt2-124m", {"batch.global=4"});
  const Program program = make_program(recipe, tutti_profile());
  int64_t rows = 0;
  for (const Op& op : program.kind("head").forward) {
    if (std::strcmp(op.name, "cross_entropy") == 0) rows += op.dims[0];
  }
  EXPECT_EQ(rows, 4 * 1024);
}

// Program x Schedule, summed over all ranks, equals the formula of spec/model/flops.h.
TEST(Program, FlopsAddUpToTheFormula) {
  struct Case {
    const char* model;
    const char* mesh;
  };
  for (const Case& one : std::vector<Case>{{"gpt2-124m", "{}"},
                                           {"gpt2-124m", "{tp: 4, pp: 3, cp: 2, dp: 2}"},
                                           {"gpt2-124m", "{pp: 3, vpp: 4}"},
                                           {"gpt2-124m", "{pp: 6, schedule: zero-bubble}"},
                                           {"llama3.1-8b", "{}"},
                                           {"llama3.1-8b", "{tp: 8, pp: 4, cp: 4, dp: 2, zero: 1}"},
                                           {"llama3.1-405b", "{tp: 8, pp: 3, vpp: 6}"},
                                           {"mixtral-8x7b", "{}"},
                                           {"mixtral-8x7b", "{dp: 4, ep: 4, tp: 2, pp: 2}"},
                                           {"deepseek-v3", "{}"},
                                           {"deepseek-v3", "{dp: 8, ep: 8, pp: 3}"}}) {
    for (const char* profile :
         {"tutti", "megatron-2022", "megatron-te", "megatron-te-2.11", "megatron-bridge"}) {
      for (const char* recompute : {"none", "full"}) {
        const Recipe recipe = recipe_of(
            one.model, {std::string("parallel=") + one.mesh, "batch.global=24", "batch.micro=1",
                        "batch.sequence=1024", std::string("recompute=") + recompute,
                        std::string(one.model) == "deepseek-v3" &&
                                std::string(one.mesh) == "{dp: 8, ep: 8, pp: 3}"
                            ? "batch.global=48"
                            : "threads=0"});
        const Program program = make_program(recipe, find_profile(profile));
        const Schedule schedule = make_schedule(recipe);
        const int64_t ranks_of_stage = recipe.parallel.world() / recipe.parallel.pp;
        const auto ranks = static_cast<double>(ranks_of_stage);
        double model = 0;
        double hardware = 0;
        for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
          const Work work = step_work(program, schedule, stage);
          model += ranks * work.model_flops;
          hardware += ranks * work.flops;
        }
        SCOPED_TRACE(std::string(one.model) + one.mesh + profile + recompute);
        EXPECT_NEAR(model / model_flops_per_step(recipe), 1, 1e-12);
        EXPECT_GT(hardware, model * (std::string(recompute) == "full" ? 1.1 : 1));
      }
    }
  }
}

// Full recomputation without flash attention equals the hardware convention, up to the padding of
// the vocabulary and the squared norm.
TEST(Program, FullRecomputationIsTheHardwareConvention) {
  const Recipe recipe = recipe_of("gpt3-175b", {"batch.global=1", "recompute=full"});
  const Work work =
      step_work(make_program(recipe, find_profile("megatron-2022")), make_schedule(recipe), 0);
  const double formula = 2048 * flops_per_token(recipe.model, 2048, FlopConvention::hardware);
  EXPECT_NEAR(work.flops / formula, 1, 1e-3);
}

TEST(Program, ExpandedStepEqualsItsSums) {
  for (const char* mesh :
       {"{}", "{pp: 3, dp: 2, zero: 1}", "{pp: 3, vpp: 2, tp: 2}", "{dp: 2, zero: 3}"}) {
    const Recipe recipe = recipe_of(
        "gpt2-124m", {"batch.global=12", "batch.micro=1", std::string("parallel=") + mesh});
    const Program program = make_program(recipe, tutti_profile());
    const Schedule schedule = make_schedule(recipe);
    for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
      Work sum;
      for (const Op& op : step_operations(program, schedule, stage)) {
        sum.flops += op.flops;
        sum.model_flops += op.model_flops;
        (op.collective ? sum.collective_bytes : sum.bytes) += op.bytes;
      }
      const Work work = step_work(program, schedule, stage);
      EXPECT_NEAR(sum.flops / work.flops, 1, 1e-12);
      EXPECT_NEAR(sum.model_flops / work.model_flops, 1, 1e-12);
      EXPECT_NEAR(sum.bytes / work.bytes, 1, 1e-12);
      EXPECT_NEAR(sum.collective_bytes, work.collective_bytes, 1e-9 * work.collective_bytes);
    }
  }
}

double collective_bytes(const std::vector<Op>& ops, const char* name, Axis axis) {
  double sum = 0;
  for (const Op& op : ops) {
    if (op.collective && op.axis == axis && std::strcmp(op.name, name) == 0) sum += op.bytes;
  }
  return sum;
}

// Per layer and direction two collectives of 2 s b h bytes: all-reduce, or all-gather and
// reduce-scatter with sequence parallelism.
TEST(Program, TensorParallelVolumes) {
  const Recipe recipe =
      recipe_of("gpt3-175b", {"batch.global=1", "parallel.tp=8", "batch.micro=1"});
  const double buffer = 2.0 * 2048 * 12288;
  Profile profile = find_profile("megatron-2022");
  const LayerOps with = block_ops(recipe, profile, {});
  for (const auto* ops : {&with.forward, &with.backward_input}) {
    EXPECT_EQ(collective_bytes(*ops, "all_gather", Axis::tp), 2 * buffer);
    EXPECT_EQ(collective_bytes(*ops, "reduce_scatter", Axis::tp), 2 * buffer);
    EXPECT_EQ(collective_bytes(*ops, "all_reduce", Axis::tp), 0);
  }
  profile.sequence_parallel = false;
  const LayerOps without = block_ops(recipe, profile, {});
  for (const auto* ops : {&without.forward, &without.backward_input}) {
    EXPECT_EQ(collective_bytes(*ops, "all_reduce", Axis::tp), 2 * buffer);
    EXPECT_EQ(collective_bytes(*ops, "all_gather", Axis::tp), 0);
  }
}

// Context parallel ranks gather 2 s b k d keys and values; boundaries carry 2 s b h / t bytes.
TEST(Program, ContextAndPipelineVolumes) {
  const Recipe recipe = recipe_of(
      "llama3.1-8b",
      {"parallel={cp: 4, pp: 2, tp: 2}", "batch.global=2", "batch.micro=1", "batch.sequence=8192"});
  const Program program = make_program(recipe, find_profile("megatron-te"));
  EXPECT_EQ(collective_bytes(program.kind("block").forward, "all_gather", Axis::cp),
            2.0 * 8192 * (8.0 / 2) * 128 * 2);
  EXPECT_EQ(program.stages[0].transfer.at(0).bytes, 2.0 * 8192 / 4 * 4096 / 2);
}

// The residual stream crosses a boundary unchanged: f32 here, bf16 in profiles that keep it so.
TEST(Program, BoundariesCarryTheResidualStream) {
  const Recipe recipe =
      recipe_of("gpt2-124m", {"parallel.pp=2", "batch.global=4", "batch.micro=1"});
  const auto bytes = [&](const char* profile) {
    return make_program(recipe, find_profile(profile)).stages[0].transfer.at(0).bytes;
  };
  EXPECT_EQ(bytes("tutti"), 4.0 * 1024 * 768);
  EXPECT_EQ(bytes("megatron-te"), 2.0 * 1024 * 768);
  const Program program = make_program(recipe, tutti_profile());
  ASSERT_EQ(program.kind("tail").backward_input.size(), 1U);  // the branch's gradient, in bf16
  EXPECT_EQ(program.kind("tail").backward_input[0].bytes, 6.0 * 1024 * 768);
}

TEST(Program, ExpertsExchangeTheirTokens) {
  const Recipe recipe = recipe_of("mixtral-8x7b", {"parallel={dp: 4, ep: 4}", "batch.global=4",
                                                   "batch.micro=1", "batch.sequence=4096"});
  const Program program = make_program(recipe, find_profile("megatron-te"));
  const double copies = 2.0 * 4096 * 2 * 4096;  // top 2, hidden 4096, bf16
  EXPECT_EQ(collective_bytes(program.kind("moe").forward, "all_to_all", Axis::ep), 2 * copies);
  EXPECT_EQ(collective_bytes(program.kind("moe").backward_input, "all_to_all", Axis::ep),
            2 * copies);
}

// Gradients of 4 bytes are reduced once per step, weights of 2 bytes gathered (ZeRO-1).
TEST(Program, DataParallelVolumes) {
  const auto reduced = [](int zero, const char* name) {
    const Recipe recipe =
        recipe_of("llama3.1-8b", {"parallel={dp: 8, zero: " + std::to_string(zero) + "}",
                                  "batch.global=32", "batch.micro=1", "batch.sequence=512"});
    return collective_bytes(
        step_operations(make_program(recipe, tutti_profile()), make_schedule(recipe), 0), name,
        Axis::dp);
  };
  const auto elements =
      static_cast<double>(param_layout(param_table(preset("llama3.1-8b"))).elements);
  const double words = 8 * 32;  // the step's sums of every rank
  EXPECT_EQ(reduced(0, "all_reduce"), 4 * elements);
  EXPECT_EQ(reduced(0, "all_gather"), words);
  EXPECT_EQ(reduced(1, "reduce_scatter"), 4 * elements);
  EXPECT_EQ(reduced(1, "all_gather"), 2 * elements + words);
  // In every micro-batch: everything for the forward pass; the blocks again for the backward pass,
  // without embedding, head and last norm.
  const double outer = 2.0 * 128256 * 4096 + 4096;
  EXPECT_EQ(reduced(3, "all_gather"), 2 * 4 * (2 * elements - outer) + words);
  EXPECT_EQ(reduced(3, "reduce_scatter"), 4 * 4 * elements);
}

TEST(Program, ContextRanksGatherKeysOrExchangeHeads) {
  const Recipe recipe = recipe_of("llama3.1-8b", {"parallel={cp: 4}", "batch.global=1",
                                                  "batch.micro=1", "batch.sequence=8192"});
  const auto bytes = [&](const char* profile, const std::string& name) {
    double sum = 0;
    const Program program = make_program(recipe, find_profile(profile));
    for (const Op& op : program.kind("block").forward) {
      if (op.collective && op.axis == Axis::cp && name == op.name) sum += op.bytes;
    }
    return sum;
  };
  EXPECT_EQ(bytes("megatron-te", "all_gather"), 8192.0 * 2 * 1024 * 2);
  EXPECT_EQ(bytes("megatron-te", "all_to_all"), 0);
  EXPECT_EQ(bytes("megatron-te-2.11", "all_gather"), 0);
  EXPECT_EQ(bytes("megatron-te-2.11", "all_to_all"), 2048.0 * (2 * 4096 + 2 * 1024) * 2);
}

// In the trainer keys and values travel around the ranks, and their gradients back in f32: cp - 1
// times each. All blocks together are the causal half of a rank's share.
TEST(Program, ContextRanksPassKeysAroundARing) {
  const Recipe recipe = recipe_of("llama3.1-8b", {"parallel={cp: 4}", "batch.global=1",
                                                  "batch.micro=1", "batch.sequence=8192"});
  const Program program = make_program(recipe, tutti_profile());
  const LayerOps& block = program.kind("block");
  const double block_elements = 2048.0 * 2 * 1024;
  for (const char* name : {"send", "receive"}) {
    EXPECT_EQ(collective_bytes(block.forward, name, Axis::cp), 3 * block_elements * 2);
    EXPECT_EQ(collective_bytes(block.backward_input, name, Axis::cp), 3 * block_elements * (2 + 4));
  }
  const auto flops = [](const std::vector<Op>& ops, const std::string& name, double Op::*part) {
    double sum = 0;
    for (const Op& op : ops) {
      if (name == op.name) sum += op.*part;
    }
    return sum;
  };
  const double pairs = 32.0 * 128 * 8192 * 8192 / 2 / 4;
  EXPECT_EQ(flops(block.forward, "attention_block_forward", &Op::flops), 4 * pairs);
  EXPECT_EQ(flops(block.backward_input, "attention_block_backward", &Op::flops), 10 * pairs);
  EXPECT_EQ(flops(block.backward_input, "attention_block_backward", &Op::model_flops), 8 * pairs);
}

// Capacity of a rank's experts: for any routing, with a capacity factor, or with
// expert_room_percent.
TEST(Program, CapacityForTokenCopies) {
  const auto sizes = [](const std::string& parallel, const std::string& capacity) {
    const Recipe recipe = recipe_of(
        "mixtral-8x7b", {"parallel={" + parallel + "}", "model.moe.capacity_factor=" + capacity,
                         "batch.global=16", "batch.micro=2", "batch.sequence=1024"});
    return local_sizes(recipe, tutti_profile());
  };
  const int64_t copies = 2 * 1024 * 2;
  EXPECT_EQ(sizes("dp: 1", "0").routed_tokens, copies);
  EXPECT_EQ(sizes("dp: 4, ep: 4", "0").copies, copies);
  EXPECT_EQ(sizes("dp: 4, ep: 4", "0").routed_tokens, 4 * copies);
  EXPECT_EQ(sizes("dp: 8, ep: 8", "0").routed_tokens,
            8 * copies / 2);  // one expert of the two selected
  EXPECT_EQ(sizes("dp: 4, ep: 4, expert_room_percent: 150", "0").routed_tokens, copies * 3 / 2);
  EXPECT_EQ(sizes("dp: 4, ep: 4, expert_room_percent: 900", "0").routed_tokens, 4 * copies);
  // 1.5 * 1024 * 2 / 8 = 384 of each sequence for every expert.
  EXPECT_EQ(sizes("dp: 4, ep: 4", "1.5").routed_tokens, 4 * 2 * 2 * 384);
  EXPECT_EQ(sizes("dp: 2, cp: 2, ep: 4", "1.5").routed_tokens, 2 * 2 * 2 * 384);
  EXPECT_EQ(sizes("dp: 2, cp: 2, ep: 2", "1.5").routed_tokens, 1 * 2 * 4 * 384);
  EXPECT_EQ(sizes("dp: 4, ep: 4", "0.5").copies, 2 * 8 * 128);
}

// Fixed-size exchanges: used if a capacity bounds them by little more than the copies, and neither
// split sequences nor a smaller expert_room_percent change that bound.
TEST(Program, CopiesAreSentInPiecesIfACapacityBoundsThem) {
  const auto program = [](const std::string& parallel, const std::string& capacity) {
    const Recipe recipe = recipe_of(
        "mixtral-8x7b", {"parallel={" + parallel + "}", "model.moe.capacity_factor=" + capacity,
                         "batch.global=16", "batch.micro=2", "batch.sequence=1024"});
    const double bytes = collective_bytes(make_program(recipe, tutti_profile()).kind("moe").forward,
                                          "all_to_all", Axis::ep);
    return std::pair(local_sizes(recipe, tutti_profile()), bytes);
  };
  const int64_t copies = 2 * 1024 * 2;
  const double row_bytes = 2.0 * 4096;
  const auto [pieces, bytes] = program("dp: 4, ep: 4", "1.5");
  EXPECT_EQ(pieces.piece_rows, 2 * 2 * 384);  // of two experts, of two sequences
  EXPECT_EQ(pieces.copies, 4 * pieces.piece_rows);
  EXPECT_EQ(pieces.routed_tokens, pieces.copies);
  EXPECT_EQ(pieces.chosen_copies, copies);
  EXPECT_EQ(bytes, 2 * static_cast<double>(pieces.copies) * row_bytes + 4 * (8 + 4));
  for (const auto& [parallel, capacity] : std::vector<std::pair<std::string, std::string>>{
           {"dp: 4, ep: 4", "0"},
           {"dp: 4, ep: 4", "2.5"},
           {"dp: 4, ep: 4, expert_room_percent: 150", "1.5"},
           {"dp: 2, cp: 2, ep: 4", "1.5"}}) {
    const auto [counted, counted_bytes] = program(parallel, capacity);
    SCOPED_TRACE(fmt::format("{} capacity {}", parallel, capacity));
    EXPECT_EQ(counted.piece_rows, 0);
    EXPECT_EQ(counted.copies, counted.chosen_copies);
    EXPECT_EQ(counted_bytes, 2 * static_cast<double>(counted.copies) * row_bytes + 4 * 8);
  }
  EXPECT_EQ(program("dp: 4", "1.5").first.piece_rows, 0);
}

}  // namespace
}  // namespace tutti::spec
