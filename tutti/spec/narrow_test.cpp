#include "tutti/spec/narrow.h"

#include <gtest/gtest.h>

#include <string_view>

#include "tutti/spec/memory.h"
#include "tutti/spec/program.h"
#include "tutti/spec/spec_test_support.h"

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
    return (m * k + k * n) * (2 - e);  // what both operands shrink by
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
  EXPECT_EQ(bytes_of(narrow.updates[0], "quantize"), weights * (2 + 2 * e));
}

TEST(Narrow, MemoryHoldsBothCopiesOfTheMatrices) {
  const Profile& profile = find_profile("megatron-te");
  const MemoryMap wide = memory_map(block_of("bf16"), profile);
  const MemoryMap narrow = memory_map(block_of("fp4"), profile);
  const double weights = 32.0 * 4096 * (6144 + 4096 + 28672 + 14336);
  EXPECT_EQ(static_cast<double>(narrow.arena("narrow").bytes), weights * 2 * 9 / 16);
  EXPECT_EQ(narrow.total_bytes() - wide.total_bytes(), narrow.arena("narrow").bytes);
  EXPECT_FALSE(memory_map(block_of("fp8"), profile).has("narrow"));
}

TEST(Narrow, ExpertsAreNarrowRoutersAreNot) {
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
