#include <gtest/gtest.h>

#include "tutti/engine/cpu/gemm_bf16.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/gemm_peak.h"
#include "tutti/engine/testing/reference.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

struct GemmShape {
  int64_t m, n, k;
};

// One product by `function` against the reference, with padded leading dimensions.
template <typename Function>
void check_product(const GemmShape& s, DType dtype, DType c_dtype, bool transpose_a,
                   bool transpose_b, float beta, const TestMatrix* bias, const Function& function,
                   float alpha = 1) {
  SCOPED_TRACE(fmt::format("m {} n {} k {} {} -> {}, transpose {} {}, alpha {}, beta {}, bias {}",
                           s.m, s.n, s.k, dtype_name(dtype), dtype_name(c_dtype), transpose_a,
                           transpose_b, alpha, beta,
                           bias == nullptr ? "none" : dtype_name(bias->view().dtype)));
  const TestMatrix a =
      random_matrix(transpose_a ? s.k : s.m, transpose_a ? s.m : s.k, dtype, 1, 1, 3);
  const TestMatrix b =
      random_matrix(transpose_b ? s.n : s.k, transpose_b ? s.k : s.n, dtype, 2, 1, 1);
  const TestMatrix before = random_matrix(s.m, s.n, c_dtype, 3, 1, 5);
  TestMatrix c = beta == 0 ? poisoned_matrix(s.m, s.n, c_dtype, 5) : before;
  GemmArgs args;
  args.a = a;
  args.b = b;
  args.c = c;
  args.transpose_a = transpose_a;
  args.transpose_b = transpose_b;
  args.beta = beta;
  args.alpha = alpha;
  if (bias != nullptr) args.bias = *bias;
  function(args);
  std::vector<double> scaled = a.values();
  for (double& x : scaled) x *= static_cast<double>(alpha);
  const auto expected = reference::gemm(scaled, transpose_a, b.values(), transpose_b, s.m, s.n, s.k,
                                        static_cast<double>(beta), before.values(),
                                        bias == nullptr ? std::vector<double>() : bias->values());
  EXPECT_TRUE(close(c, expected));
}

// Shapes around the edges of tiles (8 x 48, 16 words of k), single elements, and one deep enough
// for several passes over k.
const GemmShape kGemmShapes[] = {{1, 1, 1},   {3, 101, 24}, {21, 24, 101}, {8, 48, 32},
                                 {9, 49, 33}, {101, 3, 1},  {67, 131, 65}, {17, 50, 3301}};

void check_all_forms(const GemmShape& s, DType dtype) {
  const auto run = [](const GemmArgs& g) { test_stream().ops().gemm(test_stream(), g); };
  const TestMatrix wide = random_vector(s.n, DType::f32, 4);
  const TestMatrix same = random_vector(s.n, dtype, 5);
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      check_product(s, dtype, dtype, transpose_a, transpose_b, 0, &same, run);
      check_product(s, dtype, dtype, transpose_a, transpose_b, 1, &wide, run);
      check_product(s, dtype, DType::f32, transpose_a, transpose_b, 0, &wide, run);
      check_product(s, dtype, DType::f32, transpose_a, transpose_b, 1, nullptr, run);
      check_product(s, dtype, dtype, transpose_a, transpose_b, 0, nullptr, run, 0.75F);
      check_product(s, dtype, DType::f32, transpose_a, transpose_b, 1, nullptr, run, -2);
    }
  }
}

TEST(Gemm, EqualsTheReferenceInBf16) {
  for_each_isa([] {
    for (const GemmShape& s : kGemmShapes) check_all_forms(s, DType::bf16);
  });
}

TEST(Gemm, EqualsTheReferenceInF32) {  // oneDNN selects the instruction set
  for (const GemmShape& s : kGemmShapes) check_all_forms(s, DType::f32);
}

// From 1024 rows on the choice of kernels differs.
TEST(Gemm, EqualsTheReferenceForManyRows) {
  for_each_dtype([](DType dtype) { check_all_forms({1025, 19, 9}, dtype); });
}

// Each kernel, also for shapes that cpu_gemm dispatches to the other one.
TEST(Gemm, OneDnnEqualsTheReference) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: needs a CPU stream";
  for_each_isa_and_dtype([](DType dtype) {
    const auto run = [](const GemmArgs& g) {
      gemm_onednn(static_cast<CpuStream&>(test_stream()), g);
    };
    const TestMatrix bias = random_vector(101, DType::f32, 4);
    for (const bool transpose : {false, true}) {
      check_product({3, 101, 24}, dtype, dtype, transpose, !transpose, 0, &bias, run);
      check_product({3, 101, 24}, dtype, dtype, transpose, transpose, 1, nullptr, run);
      check_product({21, 101, 7}, dtype, DType::f32, transpose, transpose, 1, &bias, run);
      check_product({21, 16, 70}, dtype, dtype, transpose, transpose, 1, nullptr, run, 0.3F);
    }
  });
}

TEST(Gemm, Bf16KernelEqualsTheReferenceForManyShapes) {
  if (!on_cpu() || !use_bf16_dot()) GTEST_SKIP() << "skipped: needs AVX512_BF16";
  const auto run = [](const GemmArgs& g) {
    ASSERT_TRUE(gemm_bf16_possible(g));
    gemm_bf16(static_cast<CpuStream&>(test_stream()), g);
  };
  for (const GemmShape& s : kGemmShapes) {
    const TestMatrix bias = random_vector(s.n, DType::bf16, 4);
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        check_product(s, DType::bf16, DType::bf16, transpose_a, transpose_b, 0, &bias, run);
        check_product(s, DType::bf16, DType::f32, transpose_a, transpose_b, 1, &bias, run);
        check_product(s, DType::bf16, DType::f32, transpose_a, transpose_b, 0, nullptr, run);
        check_product(s, DType::bf16, DType::bf16, transpose_a, transpose_b, 1, &bias, run);
        check_product(s, DType::bf16, DType::bf16, transpose_a, transpose_b, 1, nullptr, run, 1.5F);
      }
    }
  }
  for (int64_t m = 1; m < 40; m += 3) {
    for (int64_t n = 1; n < 120; n += 17) {
      const GemmShape s{m, n, (m * 7 + n) % 70 + 1};
      check_product(s, DType::bf16, DType::bf16, m % 2 == 0, n % 3 == 0, 0, nullptr, run);
      check_product(s, DType::bf16, DType::f32, m % 2 != 0, n % 3 == 0, 1, nullptr, run);
    }
  }
}

// A is packed if it is transposed, else read in place; few columns of a transposed A are the rows
// of the transposed product. The sums are bitwise equal.
TEST(Gemm, Bf16KernelIsBitwiseEqualInEveryOrientation) {
  if (!on_cpu() || !use_bf16_dot()) GTEST_SKIP() << "skipped: needs AVX512_BF16";
  const auto one_thread = make_test_stream(1);
  for (const GemmShape& s :
       {GemmShape{67, 131, 65}, {40, 16, 33}, {530, 3, 18}, {9, 50, 3301}, {1, 1, 1}}) {
    SCOPED_TRACE(fmt::format("m {} n {} k {}", s.m, s.n, s.k));
    const TestMatrix a = random_matrix(s.m, s.k, DType::bf16, 1, 1, 3);
    const TestMatrix b = random_matrix(s.k, s.n, DType::bf16, 2);
    TestMatrix transposed = zero_matrix(s.k, s.m, DType::bf16);
    for (int64_t i = 0; i < s.m; ++i) {
      for (int64_t j = 0; j < s.k; ++j) {
        transposed.view().row<bf16>(j)[i] = a.view().row<bf16>(i)[j];
      }
    }
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const TestMatrix direct = random_matrix(s.m, s.n, dtype, 3);
      const TestMatrix packed = random_matrix(s.m, s.n, dtype, 3);
      const TestMatrix serial = random_matrix(s.m, s.n, dtype, 3);
      GemmArgs args = {.a = a, .b = b, .c = direct, .beta = 1};
      gemm_bf16(static_cast<CpuStream&>(test_stream()), args);
      args.c = serial;
      gemm_bf16(static_cast<CpuStream&>(*one_thread), args);
      args = {.a = transposed, .b = b, .c = packed, .transpose_a = true, .beta = 1};
      gemm_bf16(static_cast<CpuStream&>(test_stream()), args);
      EXPECT_TRUE(direct.same_bytes(packed));
      EXPECT_TRUE(direct.same_bytes(serial));
    }
  }
}

TEST(Gemm, EmptyKScalesAndAddsTheBias) {
  for_each_dtype([](DType dtype) {
    const auto run = [](const GemmArgs& g) { test_stream().ops().gemm(test_stream(), g); };
    const TestMatrix bias = random_vector(5, dtype, 4);
    check_product({3, 5, 0}, dtype, dtype, false, false, 0, nullptr, run);
    check_product({3, 5, 0}, dtype, dtype, false, true, 1, &bias, run);
    check_product({3, 5, 0}, dtype, DType::f32, true, false, 0, &bias, run);
  });
}

TEST(Gemm, EmptyOutputsDoNothing) {
  for_each_isa_and_dtype([](DType dtype) {
    const auto run = [](const GemmArgs& g) { test_stream().ops().gemm(test_stream(), g); };
    check_product({0, 5, 7}, dtype, dtype, false, true, 0, nullptr, run);
    check_product({5, 0, 7}, dtype, dtype, true, false, 0, nullptr, run);
  });
}

TEST(Gemm, IsBitwiseRepeatableAndIndependentOfThreads) {
  const TestMatrix a = random_matrix(300, 67, DType::bf16, 1);
  const TestMatrix b = random_matrix(300, 131, DType::bf16, 2);
  TestMatrix once = poisoned_matrix(67, 131);
  TestMatrix again = poisoned_matrix(67, 131);
  const auto one_thread = make_test_stream(1);
  test_stream().ops().gemm(test_stream(), {.a = a, .b = b, .c = once, .transpose_a = true});
  test_stream().ops().gemm(test_stream(), {.a = a, .b = b, .c = again, .transpose_a = true});
  EXPECT_TRUE(once.same_bytes(again));
  if (!on_cpu() || use_bf16_dot()) {  // oneDNN does not guarantee it
    one_thread->ops().gemm(*one_thread, {.a = a, .b = b, .c = again, .transpose_a = true});
    EXPECT_TRUE(once.same_bytes(again));
  }
}

// Also if the library does not multiply bf16.
TEST(GemmPeak, IsMeasuredOnEveryInstructionSet) {
  if (!on_cpu()) GTEST_SKIP() << "skipped: CPU only";
  for_each_isa_and_dtype(
      [](DType dtype) { EXPECT_GT(measure_gemm_peak(test_stream(), dtype, {64}, 1), 0); });
}

TEST(Gemm, RecordsTheOperation) {
  Recorder recorder;
  const auto stream = make_test_stream(1);
  stream->set_recorder(&recorder);
  const TestMatrix a = random_matrix(7, 3, DType::bf16, 1);  // transposed: m 3, k 7
  const TestMatrix b = random_matrix(7, 5, DType::bf16, 2);
  const TestMatrix bias = random_vector(5, DType::f32, 3);
  const TestMatrix c = zero_matrix(3, 5);
  stream->ops().gemm(*stream,
                     {.a = a, .b = b, .c = c, .transpose_a = true, .beta = 1, .bias = bias});
  ASSERT_EQ(recorder.records().size(), 1U);
  const OpRecord& entry = recorder.records()[0];
  EXPECT_STREQ(entry.op, "gemm");
  EXPECT_EQ(entry.dims, (std::array<int64_t, kMaxOpDims>{3, 5, 7, 0, 0, 0}));
  EXPECT_EQ(entry.flops, 2.0 * 3 * 5 * 7);
  EXPECT_EQ(entry.bytes, 7 * 3 * 2 + 7 * 5 * 2 + 2 * 3 * 5 * 4 + 5 * 4);
}

TEST(GemmDeathTest, MismatchedShapesAbort) {
  const TestMatrix a = zero_matrix(2, 3);
  const TestMatrix b = zero_matrix(4, 5);
  const TestMatrix c = zero_matrix(2, 5);
  EXPECT_DEATH(test_stream().ops().gemm(test_stream(), {.a = a, .b = b, .c = c}),
               "gemm: A \\[2, 3\\] B \\[4, 5\\] C \\[2, 5\\]");
}

}  // namespace
}  // namespace tutti::engine::testing
