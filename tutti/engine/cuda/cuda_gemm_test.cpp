// Products of model sizes in device memory, with the search for algorithms.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/rng.h"
#include "tutti/engine/backend.h"

namespace tutti::engine {
namespace {

class CudaGemmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string missing = cuda_backend().missing();
    if (!missing.empty()) GTEST_SKIP() << "skipped: " << missing;
    posix_file_system().remove_tree(folder_);
  }
  void TearDown() override { posix_file_system().remove_tree(folder_); }

  std::unique_ptr<Stream> make_stream() {
    return cuda_backend().make_stream({.tuning_folder = folder_});
  }

  std::string folder_ = ::testing::TempDir() + "cuda-gemm";
};

// Random operands on the host and on the device.
struct Operand {
  std::vector<float> values;
  Arena arena;
  Matrix view;
  Operand(Stream& stream, int64_t rows, int64_t cols, DType dtype, uint64_t seed)
      : values(static_cast<size_t>(rows * cols)),
        arena("operand", rows * cols * dtype_bytes(dtype), ArenaKind::device),
        view(matrix(arena.data(), dtype, rows, cols)) {
    fill_normal(values.data(), rows * cols, seed, 0, 0.0F, 1.0F);
    if (dtype == DType::f32) {
      stream.transfer(arena.data(), values.data(), arena.bytes());
      return;
    }
    std::vector<bf16> rounded(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      rounded[i] = to_bf16(values[i]);
      values[i] = to_f32(rounded[i]);
    }
    stream.transfer(arena.data(), rounded.data(), arena.bytes());
  }
};

std::vector<float> fetch(Stream& stream, const Matrix& x) {
  std::vector<float> out(static_cast<size_t>(x.rows * x.cols));
  if (x.dtype == DType::f32) {
    stream.transfer(out.data(), x.data, x.bytes());
    stream.synchronize();
    return out;
  }
  std::vector<bf16> narrow(out.size());
  stream.transfer(narrow.data(), x.data, x.bytes());
  stream.synchronize();
  for (size_t i = 0; i < out.size(); ++i) out[i] = to_f32(narrow[i]);
  return out;
}

// ||found - expected|| / ||expected|| of some rows, in f64.
double error(const Operand& a, const Operand& b, bool transposed, const std::vector<float>& before,
             const std::vector<float>& found, int64_t m, int64_t n, int64_t k) {
  double difference = 0;
  double whole = 0;
  for (int64_t i = 0; i < m; i += 97) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = before.empty() ? 0 : static_cast<double>(before[static_cast<size_t>(i * n + j)]);
      for (int64_t p = 0; p < k; ++p) {
        const int64_t at = transposed ? j * k + p : p * n + j;
        sum += static_cast<double>(a.values[static_cast<size_t>(i * k + p)]) *
               static_cast<double>(b.values[static_cast<size_t>(at)]);
      }
      const double got = static_cast<double>(found[static_cast<size_t>(i * n + j)]);
      difference += (got - sum) * (got - sum);
      whole += sum * sum;
    }
  }
  return std::sqrt(difference / whole);
}

TEST_F(CudaGemmTest, LargeProductsEqualTheReferenceAlsoDuringTheSearch) {
  const auto stream = make_stream();
  constexpr int64_t m = 1024, n = 768, k = 2048;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const DType result : {dtype, DType::f32}) {
      for (const bool transposed : {false, true}) {
        SCOPED_TRACE(fmt::format("{} -> {} transposed {}", dtype_name(dtype), dtype_name(result),
                                 transposed));
        const Operand a(*stream, m, k, dtype, 1);
        const Operand b(*stream, transposed ? n : k, transposed ? k : n, dtype, 2);
        const Operand c(*stream, m, n, result, 3);
        GemmArgs args;
        args.a = a.view;
        args.b = b.view;
        args.c = c.view;
        args.transpose_b = transposed;
        args.beta = 1;
        const double allowed = result == DType::bf16 ? 4e-3 : 1e-5;
        stream->ops().gemm(*stream, args);
        const std::vector<float> once = fetch(*stream, c.view);
        EXPECT_LT(error(a, b, transposed, c.values, once, m, n, k), allowed);
        stream->ops().gemm(*stream, args);  // the plan is cached now
        EXPECT_LT(error(a, b, transposed, once, fetch(*stream, c.view), m, n, k), allowed);
        args.beta = 0;
        c.arena.poison(0, c.arena.bytes());
        stream->ops().gemm(*stream, args);
        EXPECT_LT(error(a, b, transposed, {}, fetch(*stream, c.view), m, n, k), allowed);
      }
    }
  }
}

TEST_F(CudaGemmTest, ChoicesAreStoredAndGiveTheSameBits) {
  std::vector<float> first;
  for (int process = 0; process < 2; ++process) {
    const auto stream = make_stream();
    const Operand a(*stream, 512, 4096, DType::bf16, 1);
    const Operand b(*stream, 4096, 512, DType::bf16, 2);
    const Operand c(*stream, 512, 512, DType::f32, 3);
    GemmArgs args;
    args.a = a.view;
    args.b = b.view;
    args.c = c.view;
    stream->ops().gemm(*stream, args);
    const std::vector<float> found = fetch(*stream, c.view);
    if (process == 0) first = found;
    EXPECT_EQ(found, first);
    EXPECT_EQ(posix_file_system().list(folder_).size(), 2U);  // the choices and the lock file
  }
}

}  // namespace
}  // namespace tutti::engine
