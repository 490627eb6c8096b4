#include "tutti/spec/program/narrow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

Recipe block_of(const std::string& precision) {
  return recipe_of("llama3.1-8b", {"precision=" + precision, "batch.global=1", "batch.micro=1",
                                   "batch.sequence=8192"});
}

double bytes_of(const std::vector<Op>& ops, std::string_view name) {
  double sum = 0;
  for (const Op& op : ops) sum += op.name == name ? op.bytes : 0;
  return sum;
}

TEST(Narrow, EmulationIsReported) {
  EXPECT_EQ(emulation_note(Precision::bf16, "cuda", "8.0"), "");
  EXPECT_EQ(emulation_note(Precision::fp8, "cuda", "8.9"), "");
  EXPECT_EQ(emulation_note(Precision::fp8, "cuda", "9.0"), "");
  EXPECT_EQ(emulation_note(Precision::fp8, "cuda", "10.0"), "");
  const auto says = [](Precision precision, const char* device, const char* architecture,
                       const char* word) {
    const std::string note = emulation_note(precision, device, architecture);
    EXPECT_NE(note.find(word), std::string::npos) << note;
  };
  says(Precision::fp8, "cuda", "8.0", "8.9");
  says(Precision::fp8, "cpu", "", "CPU");
  says(Precision::mxfp8, "cuda", "9.0", "mxfp8");
  says(Precision::fp4, "cuda", "10.0", "blocks");
}

TEST(Narrow, ElementsCarryTheirBlocksScale) {
  EXPECT_EQ(block_scaled_format(Precision::mxfp8)->element_bytes(), 33.0 / 32);
  EXPECT_EQ(block_scaled_format(Precision::fp4)->element_bytes(), 9.0 / 16);
  EXPECT_EQ(block_scaled_format(Precision::fp8), nullptr);
  EXPECT_EQ(block_scaled_format(Precision::bf16), nullptr);
}

// Llama 3.1 8B: H 4096, qkv 6144 rows, up and gate 28672, down from 14336; T tokens.
TEST(Narrow, BlockReadsFourBitsAndQuantizesEachOperandOnce) {
  const Profile& profile = find_profile("megatron-te");
  const Program wide = make_program(block_of("bf16"), profile);
  const Program narrow = make_program(block_of("fp4"), profile);
  const double t = 8192, h = 4096, qkv = 6144, up = 28672, ffn = 14336;
  const double e = 9.0 / 16;
  const auto gemm = [&](double m, double n, double k) {
    return (m * k + k * n) * (2 - e);  // both operands shrink by this
  };
  for (const char* kind : {"block", "block.first"}) {
    const LayerOps& before = wide.kind(kind);
    const LayerOps& after = narrow.kind(kind);
    const double products = gemm(t, qkv, h) + gemm(t, h, h) + gemm(t, up, h) + gemm(t, h, ffn);
    EXPECT_EQ(bytes_of(before.forward, "gemm") - bytes_of(after.forward, "gemm"), products);
    EXPECT_EQ(bytes_of(after.forward, "quantize"), t * (h + h + h + ffn) * (2 + 2 * e));
    EXPECT_EQ(bytes_of(after.backward_input, "quantize"), t * (qkv + h + up + h) * (2 + 2 * e));
    EXPECT_EQ(bytes_of(after.backward_weight, "quantize"), 0);
    EXPECT_LT(bytes_of(after.backward_weight, "gemm"), bytes_of(before.backward_weight, "gemm"));
  }
  EXPECT_EQ(bytes_of(narrow.kind("head").forward, "gemm"),
            bytes_of(wide.kind("head").forward, "gemm"));
  const double weights = 32 * (qkv * h + h * h + up * h + h * ffn);
  EXPECT_EQ(bytes_of(narrow.updates[0].update, "quantize"), weights * (2 + 2 * e));
}

// Transformer Engine quantizes before the all-gather; reduce-scatters carry sums in 16 bits.
TEST(Narrow, TensorParallelRanksGatherQuantizedInputs) {
  const auto block = [](const char* precision) {
    Recipe recipe = block_of(precision);
    recipe.parallel.tp = 8;
    return make_program(recipe, find_profile("megatron-te")).kind("block");
  };
  const LayerOps wide = block("bf16");
  for (const auto& [precision, bytes] :
       {std::pair{"fp8", 1.0}, std::pair{"mxfp8", 33.0 / 32}, std::pair{"fp4", 9.0 / 16}}) {
    const LayerOps narrow = block(precision);
    for (const auto pass :
         {&LayerOps::forward, &LayerOps::backward_input, &LayerOps::backward_weight}) {
      EXPECT_EQ(bytes_of(narrow.*pass, "all_gather"),
                bytes_of(wide.*pass, "all_gather") * bytes / 2);
      EXPECT_EQ(bytes_of(narrow.*pass, "reduce_scatter"), bytes_of(wide.*pass, "reduce_scatter"));
    }
  }
}

TEST(Narrow, MemoryHoldsBothCopiesOfTheMatrices) {
  const Profile& profile = find_profile("megatron-te");
  const MemoryMap wide = memory_map(block_of("bf16"), profile);
  const MemoryMap narrow = memory_map(block_of("fp4"), profile);
  const double weights = 32.0 * 4096 * (6144 + 4096 + 28672 + 14336);
  EXPECT_EQ(static_cast<double>(narrow.arena("narrow").bytes), weights * 2 * 9 / 16);
  // Inputs of narrow products are kept in the format (spec/memory/kept_tensors.h).
  const int64_t kept = wide.arena("activations").bytes - narrow.arena("activations").bytes;
  EXPECT_GT(kept, 0);
  EXPECT_EQ(narrow.total_bytes() - wide.total_bytes(), narrow.arena("narrow").bytes - kept);
  EXPECT_FALSE(memory_map(block_of("fp8"), profile).has("narrow"));
}

// The trainer's version: both operands are quantized before every product, into the workspace, and
// the head is narrow if requested.
TEST(Narrow, TrainerQuantizesOperandsBeforeProducts) {
  const auto count = [](const std::vector<Op>& ops, std::string_view name) {
    return std::count_if(ops.begin(), ops.end(), [&](const Op& op) { return op.name == name; });
  };
  for (const char* precision : {"fp8", "mxfp8", "fp4"}) {
    Recipe recipe = block_of(precision);
    recipe.narrow.wide_first = 2;
    const Program program = make_program(recipe, tutti_profile());
    const LayerOps& block = program.kind("block");
    for (const auto list :
         {&LayerOps::forward, &LayerOps::backward_input, &LayerOps::backward_weight}) {
      EXPECT_EQ(count(block.*list, "narrow_gemm"), 4);
      EXPECT_EQ(count(block.*list, "quantize"), 8);
      EXPECT_EQ(count(block.*list, "gemm"), 0);
      EXPECT_EQ(count(program.kind("block.wide").*list, "gemm"), 4);
      EXPECT_EQ(count(program.kind("block.wide").*list, "quantize"), 0);
    }
    EXPECT_EQ(count(program.kind("head").forward, "narrow_gemm"), 0);
    EXPECT_EQ(count(program.updates[0].update, "quantize"), 0);
    EXPECT_EQ(program.stages[0].runs.size(), 5U) << "embedding, two wide kinds, the rest, head";
    const MemoryMap map = memory_map(recipe, tutti_profile());
    EXPECT_FALSE(map.has("narrow"));
    const NarrowBuffers buffers = narrow_buffers(recipe, tutti_profile());
    const double most =
        narrow_format(operand_kind(recipe.precision)).element_bytes() * 8192 * 28672;
    EXPECT_NEAR(static_cast<double>(buffers.left), most, 0.02 * most);
    EXPECT_EQ(map.arena("workspace").slot("step").tensor("narrow.left").bytes, buffers.left);
    recipe.narrow.head = true;
    const Program with_head = make_program(recipe, tutti_profile());
    const std::vector<Op>& head = with_head.kind("head").forward;
    EXPECT_EQ(count(head, "quantize"), 2 * count(head, "narrow_gemm"));
    EXPECT_EQ(count(head, "gemm"), 0);
    recipe.narrow = {.wide_first = recipe.model.layers};
    EXPECT_EQ(narrow_buffers(recipe, tutti_profile()).left, 0);
  }
}

TEST(Narrow, ExpertsAreNarrowAndRoutersAreNot) {
  const Program program =
      make_program(recipe_of("mixtral-8x7b", {"precision=mxfp8", "batch.global=1"}),
                   find_profile("megatron-te"));
  for (const Op& op : program.kind("moe").forward) {
    const bool router = std::string_view(op.name) == "gemm" && op.dims[1] == 8;
    const bool product =
        op.flops > 0 && std::string_view(op.name).find("gemm") != std::string_view::npos;
    EXPECT_EQ(op.narrow, product && !router) << op.name;
  }
}

}  // namespace
}  // namespace tutti::spec
