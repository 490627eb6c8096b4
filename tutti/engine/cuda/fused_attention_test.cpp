// Operations composed of fused kernel calls (cudnn_attention.cpp): pieces, packed documents, blocks
// of ring attention. On a GPU by cuDNN, else by its host stand-in
// (engine/testing/on_host/cudnn.cpp).
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tutti/base/attention_workspace.h"
#include "tutti/base/device_workspace.h"
#include "tutti/engine/cuda/attention.h"
#include "tutti/engine/cuda/attention_plain.h"
#include "tutti/engine/cuda/stream.h"
#include "tutti/engine/describe.h"
#include "tutti/engine/testing/attention_check.h"
#include "tutti/engine/testing/test_support.h"

namespace tutti::engine::testing {
namespace {

#ifdef TUTTI_CUDA_ON_HOST
constexpr bool kStandIn = true;
#else
constexpr bool kStandIn = false;
#endif

// The stand-in supports every shape here. cuDNN may refuse one: then the plain kernels have
// computed the results, which are checked too, and the output has the library's message.
void expect_supported(CudaStream& stream) {
  const std::string& refusal = stream.attention().refusal();
  if (kStandIn) {
    EXPECT_EQ(refusal, "");
  }
  if (!refusal.empty()) std::cout << "refused by cuDNN: " << refusal << "\n";
}

// Partial results of ring attention are rounded to bf16 before they are merged: one more rounding.
constexpr double kPartRoundings = 1;

class FusedAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "skipped: needs the CUDA backend (TUTTI_TEST_DEVICE=cuda)";
    align_rows(true);
    owned_ = make_test_stream(2);
  }
  void TearDown() override { align_rows(false); }

  CudaStream& stream() { return cuda_stream(*owned_); }
  void run(AttentionCase& c) {
    c.forward(stream());
    c.backward(stream());
  }
  void expect_right(AttentionCase& c) {
    const Reference want = c.expected();
    run(c);
    expect_supported(stream());
    expect_close(c.out, want.out, kForwardRoundings);
    EXPECT_TRUE(close(c.lse, want.lse, 1e-4));
    expect_close(c.d_qkv, want.d_qkv, kBackwardRoundings);
  }

  std::unique_ptr<Stream> owned_;
};

TEST_F(FusedAttention, PiecesOfABackwardPassDoNotChangeABit) {
  for (const Shape& shape : {Shape{3, 65, 6, 2, 16}, Shape{2, 130, 3, 3, 8}, Shape{1, 33, 5, 1, 24},
                             Shape{5, 40, 4, 4, 8}, Shape{2, 66, 10, 5, 8}}) {
    SCOPED_TRACE(name(shape));
    AttentionCase whole(shape, DType::bf16);
    stream().attention().limit_pieces(kAttentionPieceBytes);
    expect_right(whole);
    const AttentionCall one = {1, shape.t, shape.t, shape.a, shape.k, shape.d};
    AttentionCall head = one;
    head.heads = shape.a / shape.k;
    head.kv_heads = 1;
    const int64_t element = attention_backward_bytes(one, true);
    // One key/value head at a time, two of them, an element, two.
    for (const int64_t limit :
         {int64_t{1}, 2 * attention_backward_bytes(head, true), element, 2 * element}) {
      SCOPED_TRACE(limit);
      AttentionCase parts(shape, DType::bf16);
      stream().attention().limit_pieces(limit);
      run(parts);
      // cuDNN may choose different kernels for different sizes.
      if (kStandIn) {
        EXPECT_TRUE(parts.d_qkv.same_bytes(whole.d_qkv));
      }
      expect_close(parts.d_qkv, whole.d_qkv.values(), kBackwardRoundings);
    }
  }
}

TEST_F(FusedAttention, PackedDocumentsOfAnyLengths) {
  for (const std::vector<int64_t>& lengths :
       std::vector<std::vector<int64_t>>{{65}, {64}, {66, 3, 128, 1}, {129, 64, 65}, {1000}, {1}}) {
    for (const Shape& shape : {Shape{2, 131, 4, 2, 24}, Shape{1, 300, 3, 3, 8},
                               Shape{3, 200, 2, 1, 16}, Shape{2, 65, 2, 2, 8}}) {
      for (const int64_t limit : {kAttentionPieceBytes, int64_t{1}}) {
        SCOPED_TRACE(fmt::format("{} documents of {}, pieces of {}", name(shape),
                                 fmt::join(lengths, ", "), limit));
        AttentionCase c(shape, DType::bf16);
        c.pack(lengths);
        stream().attention().limit_pieces(limit);
        expect_right(c);
      }
    }
  }
}

// Rows that attend to a part of an earlier document do not occur with packed documents, but the
// operation's contract allows them: the plain kernels process both documents.
TEST_F(FusedAttention, OverlappingDocumentsUseThePlainKernels) {
  AttentionCase c({1, 240, 2, 2, 8}, DType::bf16);
  for (int32_t t = 0; t < 240; ++t) c.starts.push_back(t < 80 ? 0 : t < 160 ? 70 : 160);
  expect_right(c);
}

TEST_F(FusedAttention, ForwardWorksWithoutStatistics) {
  AttentionCase c({2, 150, 4, 2, 16}, DType::bf16);
  c.pack({100, 20});
  const Reference want = c.expected();
  stream().ops().attention_forward(stream(), {.batch = 2,
                                              .sequence = 150,
                                              .heads = 4,
                                              .kv_heads = 2,
                                              .head_dim = 16,
                                              .qkv = c.qkv,
                                              .out = c.out,
                                              .starts = c.starts_view()});
  expect_close(c.out, want.out, kForwardRoundings);
}

TEST_F(FusedAttention, WorkspaceMatchesTheMemoryMap) {
  for (const bool documents : {false, true}) {
    for (const bool deterministic : {true, false}) {
      SCOPED_TRACE(fmt::format("documents {}, deterministic {}", documents, deterministic));
      owned_ = test_backend().make_stream(
          {.threads = 2, .deterministic = deterministic, .blocking = true});
      AttentionCase c({24, 130, 32, 4, 8}, DType::bf16);
      if (documents) c.pack({70, 60});
      c.lse.fill(0);
      c.out.fill(0);
      c.backward(stream());
      const int64_t bytes =
          attention_workspace_bytes({24, 130, 32, 4, 8, documents, false, deterministic});
      std::cout << fmt::format("workspace {} bytes, in the memory map {}\n",
                               stream().workspace_bytes(), device_workspace_bytes(bytes));
      // cuDNN chooses the workspace of a plan itself.
      if (kStandIn) {
        EXPECT_LE(stream().workspace_bytes(), device_workspace_bytes(bytes));
        EXPECT_EQ(stream().workspace_bytes() > kProductWorkspaceBytes, deterministic);
      }
    }
  }
}

TEST_F(FusedAttention, NondeterministicStreamMatchesTheReference) {
  owned_ = test_backend().make_stream({.threads = 2, .deterministic = false, .blocking = true});
  AttentionCase c({2, 129, 4, 2, 16}, DType::bf16);
  expect_right(c);
}

TEST_F(FusedAttention, RefusedShapesUseThePlainKernels) {
  ::setenv("TUTTI_HOST_CUDNN", "no-odd-groups", 1);
  AttentionCase c({3, 129, 6, 2, 16}, DType::bf16);
  const Reference want = c.expected();
  run(c);
  ::unsetenv("TUTTI_HOST_CUDNN");
  expect_close(c.out, want.out, kForwardRoundings);
  expect_close(c.d_qkv, want.d_qkv, kBackwardRoundings);
  if (stream().attention().refusal().empty()) GTEST_SKIP() << "skipped: cuDNN supports the shape";
  EXPECT_NE(stream().attention().refusal().find("odd lengths"), std::string::npos);
}

// ---- Blocks of a ring ---------------------------------------------------------------------------

struct Relation {
  int64_t query_block, key_block;
};

// Rank 1 of three, with its own keys or those of the lower or higher rank.
class FusedBlock : public FusedAttention {
 protected:
  struct Results {
    explicit Results(const Shape& s)
        : total(random_matrix(s.n(), s.a * s.d, DType::f32, 21)),
          lse(random_vector(s.b * s.a * s.t, DType::f32, 22)),
          delta(poisoned_vector(s.b * s.a * s.t)),
          d_q(random_matrix(s.n(), s.a * s.d, DType::f32, 23)),
          d_kv(random_matrix(s.n(), 2 * s.k * s.d, DType::f32, 24)) {}
    TestMatrix total, lse, delta, d_q, d_kv;
  };

  // Starts of each sequence b: one shared document with keys of other ranks, else several
  // documents.
  static std::vector<int32_t> starts_of(const Shape& s, const SeenBlock& seen) {
    std::vector<int32_t> starts;
    for (int64_t b = 0; b < s.b; ++b) {
      for (int64_t t = 0; t < s.t; ++t) {
        const int64_t length = 67 + 9 * b;
        const int64_t shared = b == 1 ? 0 : s.t / 2 - 3 * b;  // queries of the shared document
        const int64_t key = seen.key_count - 1 - 2 * b;
        starts.push_back(static_cast<int32_t>(seen.own ? t / length * length
                                              : t < seen.first_query + shared
                                                  ? std::max<int64_t>(0, key)
                                                  : s.t));
      }
    }
    return starts;
  }

  void expect_as_plain(const Shape& s, const Relation& at, bool packed, bool add) {
    SCOPED_TRACE(fmt::format("{} queries {} keys {}{}{}", name(s), at.query_block, at.key_block,
                             packed ? ", packed" : "", add ? ", added" : ""));
    const SeenBlock seen = seen_block(s.t, 3, at.query_block, at.key_block);
    const TestMatrix q = random_matrix(s.n(), s.a * s.d, DType::bf16, 11, 1, 3);
    const TestMatrix kv = random_matrix(s.n(), 2 * s.k * s.d, DType::bf16, 12, 1, 3);
    const TestMatrix d_out = random_matrix(s.n(), s.a * s.d, DType::bf16, 13);
    const std::vector<int32_t> values = starts_of(s, seen);
    const TestMatrix starts =
        TestMatrix(1, s.n(), DType::i32).assign({values.begin(), values.end()});
    Results fused(s), plain(s);
    for (Results* results : {&plain, &fused}) {
      const bool is_plain = results == &plain;
      AttentionBlockForwardArgs forward;
      fill(forward, s, at, q, kv, *results);
      forward.first = seen.own;
      forward.total = results->total;
      if (packed) forward.starts = starts;
      if (is_plain || !stream().attention().forward(forward)) {
        attend(stream(), "attend", attend_of(forward));
      }
      if (!is_plain) expect_supported(stream());
      stream().synchronize();
      const TestMatrix out = TestMatrix(s.n(), s.a * s.d, DType::bf16).assign(plain.total.values());
      AttentionBlockBackwardArgs backward;
      fill(backward, s, at, q, kv, plain);
      backward.out = out;
      backward.d_out = d_out;
      backward.delta = results->delta;
      backward.add_queries = backward.add_keys = add;
      backward.d_q = results->d_q;
      backward.d_keys = results->d_kv.view().slice_cols(0, s.k * s.d);
      backward.d_values = results->d_kv.view().slice_cols(s.k * s.d, s.k * s.d);
      if (packed) backward.starts = starts;
      AttendBackward with_out = attend_of(backward);
      if (!seen.own) {  // the rank's own block has written delta
        with_out.out = out;
        attend_delta(stream(), "delta", with_out);
      }
      if (is_plain || !stream().attention().backward(backward)) {
        attend_backward(stream(), "attend_backward", attend_of(backward));
      }
      if (!is_plain) expect_supported(stream());
      stream().synchronize();
    }
    const double roundings = kForwardRoundings + kPartRoundings;
    expect_close(fused.total, plain.total.values(), roundings, DType::bf16);
    EXPECT_TRUE(close(fused.lse, plain.lse.values(), 1e-4));
    EXPECT_TRUE(close(fused.delta, plain.delta.values(), 1e-4));
    expect_close(fused.d_q, plain.d_q.values(), kBackwardRoundings + 1, DType::bf16);
    expect_close(fused.d_kv, plain.d_kv.values(), kBackwardRoundings + 1, DType::bf16);
    for (const TestMatrix* one : {&fused.total, &fused.lse, &fused.d_q, &fused.d_kv}) {
      EXPECT_TRUE(one->outside_untouched());
    }
  }

  template <typename Args>
  static void fill(Args& args, const Shape& s, const Relation& at, const TestMatrix& q,
                   const TestMatrix& kv, Results& results) {
    args.batch = s.b;
    args.rows = s.t;
    args.heads = s.a;
    args.kv_heads = s.k;
    args.head_dim = s.d;
    args.blocks = 3;
    args.query_block = at.query_block;
    args.key_block = at.key_block;
    args.q = q;
    args.keys = kv.view().slice_cols(0, s.k * s.d);
    args.values = kv.view().slice_cols(s.k * s.d, s.k * s.d);
    args.lse = results.lse;
  }
};

TEST_F(FusedBlock, EveryBlockEqualsThePlainKernels) {
  for (const Shape& shape :
       {Shape{3, 66, 4, 2, 16}, Shape{2, 190, 3, 3, 8}, Shape{1, 12, 6, 2, 24}}) {
    for (const Relation& at : {Relation{1, 1}, Relation{1, 0}, Relation{1, 2}}) {
      for (const int64_t limit : {kAttentionPieceBytes, int64_t{1}}) {
        stream().attention().limit_pieces(limit);
        expect_as_plain(shape, at, false, false);
        expect_as_plain(shape, at, false, true);
      }
    }
  }
}

TEST_F(FusedBlock, EveryBlockOfPackedDocumentsEqualsThePlainKernels) {
  for (const Shape& shape : {Shape{3, 140, 4, 2, 16}, Shape{2, 210, 3, 3, 8}}) {
    for (const Relation& at : {Relation{1, 1}, Relation{1, 0}, Relation{1, 2}}) {
      for (const bool add : {false, true}) expect_as_plain(shape, at, true, add);
    }
  }
}

}  // namespace
}  // namespace tutti::engine::testing
