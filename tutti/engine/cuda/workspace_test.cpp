// The device memory that a stream allocates besides the arenas.
#include <gtest/gtest.h>

#include <vector>

#include "tutti/base/device_workspace.h"
#include "tutti/base/error.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/cuda/stream.h"

namespace tutti::engine {
namespace {

#ifdef TUTTI_CUDA_ON_HOST
constexpr bool kStandIn = true;
#else
constexpr bool kStandIn = false;
#endif

// Graphs contain the workspace's address. When it grows, they are dropped and the smaller workspace
// is freed.
TEST(Workspace, GrowthFreesTheOldOneAndRecapturesGraphs) {
  const Backend& cuda = cuda_backend();
  if (const std::string why = cuda.missing(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  const auto stream = cuda.make_stream({});
  constexpr int64_t kEdge = 16, kWide = int64_t{2} << 20;
  const Arena memory("operands", 3 * kEdge * kEdge * 4, ArenaKind::device);
  const auto operand = [&](int64_t number) {
    return matrix(memory.at(number * kEdge * kEdge * 4, kEdge * kEdge * 4), DType::f32, kEdge,
                  kEdge);
  };
  const std::vector<float> ones(kEdge * kEdge, 1);
  for (const int64_t number : {0, 1}) {
    stream->transfer(operand(number).data, ones.data(), kEdge * kEdge * 4);
  }
  int captures = 0;
  const auto product = [&] {
    ++captures;
    stream->ops().gemm(*stream, {.a = operand(0), .b = operand(1), .c = operand(2)});
  };
  product();  // chooses an algorithm
  captures = 0;
  for (int i = 0; i < 2; ++i) stream->replay(1, product);
  EXPECT_EQ(captures, 1);

  // A bias whose type differs from the result needs workspace besides the library's.
  const Arena large("wide", (kWide + 2 * kEdge) * 4 + kWide * 2 + 4096, ArenaKind::device);
  auto* const data = static_cast<char*>(large.data());
  const Matrix a = matrix(data, DType::f32, 1, 1);
  const Matrix b = matrix(data + 256, DType::f32, 1, kWide / 8);
  const Matrix c = matrix(data + 256 + kWide / 2, DType::f32, 1, kWide / 8);
  const Vector bias = vector(data + 256 + kWide, DType::bf16, kWide / 8);
  stream->synchronize();
  const int64_t least = device_workspace_bytes(0);
  EXPECT_EQ(cuda_stream(*stream).workspace_bytes(), least);
  const int64_t before = cuda.free_bytes(0);
  stream->ops().gemm(*stream, {.a = a, .b = b, .c = c, .bias = bias});
  stream->synchronize();
  EXPECT_EQ(cuda_stream(*stream).workspace_bytes(), least + kWorkspaceGrainBytes);
  // On a GPU other processes and the library's kernels allocate memory too.
  if (kStandIn) {
    EXPECT_EQ(before - cuda.free_bytes(0), kWorkspaceGrainBytes);
  }

  for (int i = 0; i < 2; ++i) stream->replay(1, product);
  EXPECT_EQ(captures, 2);
  std::vector<float> out(kEdge * kEdge);
  stream->transfer(out.data(), operand(2).data, kEdge * kEdge * 4);
  stream->synchronize();
  EXPECT_EQ(out, std::vector<float>(kEdge * kEdge, kEdge));
}

// A caller may survive a refused request: what is asked for next is allocated.
TEST(Workspace, ARefusedRequestLeavesAStreamThatWorks) {
  const Backend& cuda = cuda_backend();
  if (const std::string why = cuda.missing(); !why.empty()) GTEST_SKIP() << "skipped: " << why;
  const auto stream = cuda.make_stream({});
  CudaStream& own = cuda_stream(*stream);
  EXPECT_THROW(own.workspace(int64_t{1} << 55), Error);
  EXPECT_EQ(own.workspace_bytes(), 0);
  EXPECT_NE(own.workspace(1), nullptr);
  EXPECT_EQ(own.workspace_bytes(), device_workspace_bytes(1));
}

}  // namespace
}  // namespace tutti::engine
