// A counting sort of the choices in three kernels, and the counts of sharded sequences (moe_ops.h
// states the contracts). A warp scans the choices of one sequence for one expert, 32 choices at a
// time, which preserves the order of a sequence without atomics. All choices are read once per
// expert, from the L2 cache.
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/device_check.h"
#include "tutti/engine/cuda/kernels.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"
#include "tutti/engine/describe.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kScanThreads = 1024;

struct Choices {
  Rows<const int32_t> experts;
  int64_t tokens;  // of a sequence
  int64_t k;
  int64_t expert_count;
  int64_t sequences;

  __device__ int at(int64_t sequence, int64_t index) const {
    return experts.row(sequence * tokens + index / k)[index % k];
  }
};

// The (sequence, expert) of this warp; false if it has none.
__device__ bool task(const Choices& c, int64_t& sequence, int64_t& expert) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  sequence = index / c.expert_count;
  expert = index % c.expert_count;
  return sequence < c.sequences;
}

__global__ void __launch_bounds__(kThreads) count_kernel(Choices c, Rows<int32_t> counts) {
  int64_t sequence;
  int64_t expert;
  if (!task(c, sequence, expert)) return;
  const int lane = threadIdx.x % 32;
  const int64_t all = c.tokens * c.k;
  int count = 0;
  for (int64_t at = lane; at < all; at += 32) {
    const int chosen = c.at(sequence, at);
    if (expert == 0 && (chosen < 0 || chosen >= c.expert_count)) {
      device_fail("assign_rows: chosen expert (expert, choice)", chosen, at);
    }
    count += chosen == expert ? 1 : 0;
  }
  count = warp_reduce<Sum>(count);
  if (lane == 0) counts.row(sequence)[expert] = count;
}

// One block per piece of `piece_rows` rows and its `each` experts. Computes the begin and end of
// the copies of each (expert, sequence), in this order, next and end [E * B], and the offsets of
// experts, which start at 0 in each piece.
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(Choices c, Rows<const int32_t> counts, Rows<const int32_t> before, int64_t capacity,
                int64_t each, int64_t piece_rows, int32_t* next, int32_t* end, int32_t* offsets) {
  __shared__ int warp_sums[32];
  __shared__ int carried;
  const int64_t piece = blockIdx.x;
  const int64_t first_expert = piece * each;
  const int64_t all = each * c.sequences;
  const int first_row = static_cast<int>(piece * piece_rows);
  next += first_expert * c.sequences;
  end += first_expert * c.sequences;
  offsets += piece * (each + 1);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (threadIdx.x == 0) carried = 0;
  for (int64_t begin = 0; begin < all; begin += kScanThreads) {
    const int64_t at = begin + threadIdx.x;
    int taken = 0;
    if (at < all) {
      const int64_t e = first_expert + at / c.sequences;
      const int64_t b = at % c.sequences;
      taken = counts.row(b)[e];
      if (capacity > 0) {
        const int64_t room = capacity - (before ? before.row(b)[e] : 0);
        taken = static_cast<int>(min(int64_t{taken}, max(int64_t{0}, room)));
      }
    }
    int sum = taken;  // inclusive sum over the lanes up to this one
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const int lower = __shfl_up_sync(kAllLanes, sum, apart);
      if (lane >= apart) sum += lower;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int first = carried;
    for (int w = 0; w < warp; ++w) first += warp_sums[w];
    if (at < all) {
      next[at] = first_row + first + sum - taken;
      end[at] = first_row + first + sum;
      if (at % c.sequences == 0) offsets[at / c.sequences] = first + sum - taken;
    }
    __syncthreads();  // all threads have read carried and warp_sums
    if (threadIdx.x == kScanThreads - 1) carried = first + sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (carried > piece_rows) {
    device_fail("assign_rows: copies exceed the declared bound of rows", carried, piece_rows);
  }
  for (int64_t e = c.sequences == 0 ? 0 : each; e <= each; ++e) offsets[e] = carried;
}

__global__ void __launch_bounds__(kThreads)
    assign_kernel(Choices c, const int32_t* next, const int32_t* end, Rows<int32_t> positions) {
  int64_t sequence;
  int64_t expert;
  if (!task(c, sequence, expert)) return;
  const unsigned lane = threadIdx.x % 32;
  const int64_t all = c.tokens * c.k;
  int to = next[expert * c.sequences + sequence];
  const int last = end[expert * c.sequences + sequence];
  for (int64_t begin = 0; begin < all; begin += 32) {
    const int64_t at = begin + lane;
    const bool mine = at < all && c.at(sequence, at) == expert;
    const unsigned found = __ballot_sync(kAllLanes, mine);
    if (mine) {
      const int position = to + __popc(found & ((1U << lane) - 1));
      positions.row(sequence * c.tokens + at / c.k)[at % c.k] = position < last ? position : -1;
    }
    to += __popc(found);
  }
}

__global__ void merge_counts_kernel(Rows<const int32_t> counts, int64_t sequences, int64_t experts,
                                    int64_t blocks, int64_t mine, Rows<int32_t> totals,
                                    Rows<int32_t> before) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= sequences * experts) return;
  const int64_t b = at / experts;
  const int64_t e = at % experts;
  int total = 0;
  for (int64_t part = 0; part < 2 * blocks; ++part) {
    const bool late = part >= blocks;
    const int64_t block = late ? 2 * blocks - 1 - part : part;
    const int64_t half = late ? 1 : 0;
    if (block == mine) before.row(2 * b + half)[e] = total;
    total += counts.row((block * sequences + b) * 2 + half)[e];
  }
  totals.row(b)[e] = total;
}

}  // namespace

void cuda_assign_rows(Stream& stream, const AssignRowsArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const Choices c{.experts = rows_of<const int32_t>(args.experts),
                  .tokens = args.sequence,
                  .k = args.experts.cols,
                  .expert_count = args.counts.cols,
                  .sequences = args.counts.rows};
  const int64_t tasks = c.sequences * c.expert_count;
  auto* next = static_cast<int32_t*>(cuda.workspace(tasks * 2 * 4));
  int32_t* end = next + tasks;
  const dim3 grid(blocks_for(tasks, kWarps));
  launch(cuda, what.op, count_kernel, grid, dim3(kThreads), 0, c, rows_of<int32_t>(args.counts));
  const int64_t piece_rows = args.piece_rows > 0 ? args.piece_rows : args.rows;
  const int64_t pieces = args.piece_rows > 0 ? args.rows / piece_rows : 1;
  launch(cuda, what.op, scan_kernel, dim3(static_cast<unsigned>(pieces)), dim3(kScanThreads), 0, c,
         rows_of<const int32_t>(args.counts), rows_of<const int32_t>(args.before), args.capacity,
         c.expert_count / pieces, piece_rows, next, end, args.offsets.as<int32_t>());
  launch(cuda, what.op, assign_kernel, grid, dim3(kThreads), 0, c, next, end,
         rows_of<int32_t>(args.positions));
  record(cuda, what, begin);
}

void cuda_merge_counts(Stream& stream, const MergeCountsArgs& args) {
  const OpRecord what = describe(args);
  CudaStream& cuda = cuda_stream(stream);
  const double begin = begin_op(cuda);
  const int64_t sequences = args.totals.rows;
  const int64_t experts = args.totals.cols;
  launch(cuda, what.op, merge_counts_kernel, dim3(blocks_for(sequences * experts, kThreads)),
         dim3(kThreads), 0, rows_of<const int32_t>(args.counts), sequences, experts, args.blocks,
         args.block, rows_of<int32_t>(args.totals), rows_of<int32_t>(args.before));
  record(cuda, what, begin);
}

}  // namespace tutti::engine
