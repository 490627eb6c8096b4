// Dropout on the CPU (ops.h states the contract). The word of element (row, j) is
// philox(key, row, column / 4)[column % 4] with column = first_column + j (base/rng.h); the element
// is kept if uniform01(word) >= probability, and then divided by 1 - probability.
#include "tutti/base/rng.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/kernels.h"
#include "tutti/engine/cpu/parallel.h"
#include "tutti/engine/cpu/record.h"
#include "tutti/engine/describe.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tutti/engine/cpu/dropout.cpp"
#include <hwy/foreach_target.h>

#include "tutti/engine/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::engine::HWY_NAMESPACE {

using TagWord = hn::Rebind<uint32_t, Tag>;
using Word = hn::Vec<TagWord>;

#if HWY_TARGET == HWY_SCALAR

HWY_INLINE void philox_words(uint64_t key, uint64_t row, uint32_t first_block, uint32_t* words) {
  const PhiloxBlock block = philox(key, row, first_block);
  std::memcpy(words, block.data(), sizeof block);
}

#else

// High and low halves of the 64-bit products a * multiplier, lane by lane.
HWY_INLINE void multiply_wide(Word a, uint32_t multiplier, Word& high, Word& low) {
  const TagWord d;
  const hn::Repartition<uint64_t, TagWord> d64;
  const Word m = hn::Set(d, multiplier);
  const auto even = hn::MulEven(a, m);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), m);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
}

// words[4 * i + k] = philox(key, row, first_block + i)[k] for i < kLanes.
HWY_INLINE void philox_words(uint64_t key, uint64_t row, uint32_t first_block, uint32_t* words) {
  const TagWord d;
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  Word c0 = hn::Set(d, static_cast<uint32_t>(row));
  Word c1 = hn::Set(d, static_cast<uint32_t>(row >> 32));
  Word c2 = hn::Iota(d, first_block);
  Word c3 = hn::Zero(d);
  for (int round = 0; round < 10; ++round) {
    Word high0;
    Word low0;
    Word high1;
    Word low1;
    multiply_wide(c0, 0xD2511F53U, high0, low0);
    multiply_wide(c2, 0xCD9E8D57U, high1, low1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(d, k0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(d, k1));
    c1 = low1;
    c3 = low0;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  hn::StoreInterleaved4(c0, c1, c2, c3, d, words);
}

#endif

template <typename T>
void dropout_rows(const DropoutArgs& args, int64_t begin, int64_t end) {
  const hn::Rebind<int32_t, Tag> di;
  const int64_t m = args.x.cols;
  const F32 scale = set(1.0F / (1.0F - args.probability));
  const F32 threshold = set(args.probability);
  // A first column inside a Philox block skips up to three words; the last vector may start there.
  HWY_ALIGN uint32_t words[5 * kLanes + 4] = {};
  const int32_t* rows = args.rows ? args.rows.as<int32_t>() : nullptr;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = args.x.row<T>(r);
    T* out = args.out.row<T>(r);
    const auto row = static_cast<uint64_t>(args.first_row + (rows == nullptr ? r : rows[r]));
    for (int64_t first = 0; first < m;) {
      const int64_t column = args.first_column + first;
      const int64_t skip = column % 4;
      const int64_t count = std::min(4 * kLanes - skip, m - first);
      philox_words(args.key, row, static_cast<uint32_t>(column / 4), words);
      for_lanes(count, [&](int64_t j, auto block, auto) TUTTI_LANES_BODY {
        const auto word = hn::LoadU(TagWord(), words + skip + j);
        const auto top24 = hn::BitCast(di, hn::ShiftRight<8>(word));
        const F32 uniform = hn::Mul(hn::ConvertTo(Tag(), top24), set(0x1p-24F));
        const F32 v = hn::Mul(load(x + first + j, block), scale);
        store(hn::IfThenElseZero(hn::Ge(uniform, threshold), v), out + first + j, block);
      });
      first += count;
    }
  }
}

void dropout_f32(const DropoutArgs& a, int64_t begin, int64_t end) {
  dropout_rows<float>(a, begin, end);
}
void dropout_bf16(const DropoutArgs& a, int64_t begin, int64_t end) {
  dropout_rows<bf16>(a, begin, end);
}

}  // namespace tutti::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::engine {
namespace {

HWY_EXPORT(dropout_f32);
HWY_EXPORT(dropout_bf16);

}  // namespace

void cpu_dropout(Stream& stream, const DropoutArgs& given) {
  const OpRecord what = describe(given);
  const double begin = begin_op(stream);
  DropoutArgs args = given;
  if (!args.out) args.out = args.x;
  const int64_t n = args.x.rows;
  const int64_t m = args.x.cols;

  if (m > 0) {
    parallel_ranges(n, std::max<int64_t>(1, 1024 / m), [&](int64_t first, int64_t last, int) {
      if (args.x.dtype == DType::bf16) {
        HWY_DYNAMIC_DISPATCH(dropout_bf16)(args, first, last);
      } else {
        HWY_DYNAMIC_DISPATCH(dropout_f32)(args, first, last);
      }
    });
  }

  record(stream, what, begin);
}

}  // namespace tutti::engine
#endif  // HWY_ONCE
