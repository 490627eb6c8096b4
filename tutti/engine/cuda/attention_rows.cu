#include "tutti/engine/cuda/attention_rows.h"
#include "tutti/engine/cuda/block_reduce.h"
#include "tutti/engine/cuda/launch.h"
#include "tutti/engine/cuda/vectors.h"

namespace tutti::engine {
namespace {

constexpr int kThreads = 256;
constexpr int kMostClasses = 16;

dim3 blocks_of(int64_t elements, int64_t others = 1) {
  return {blocks_for(elements, kThreads), static_cast<unsigned>(others)};
}
__device__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

struct Tables {
  int64_t ld[kRowTables];
  int32_t* offsets[kRowTables];

  __device__ void set(int64_t slot, int64_t row) const {
    for (int i = 0; i < kRowTables; ++i) {
      if (offsets[i] != nullptr) offsets[i][slot] = static_cast<int32_t>(row * ld[i]);
    }
  }
};

Tables tables_of(const RowTables& tables) {
  Tables out;
  for (size_t i = 0; i < tables.size(); ++i) {
    out.ld[i] = tables[i].ld;
    out.offsets[i] = tables[i].offsets;
  }
  return out;
}

struct Slots {
  int64_t window, slots;  // of a sequence
  int32_t* lengths;
  Tables tables;
};
struct Documents {
  int64_t batch, tokens;
  const int32_t* starts;
  int32_t* shortened;
  int classes;
  Slots of[kMostClasses];
};

// Empty slots begin at their window, so that offsets are ascending.
__global__ void __launch_bounds__(kThreads) clear_slots_kernel(Documents p) {
  const Slots& one = p.of[blockIdx.y];
  const int64_t slot = thread_index();
  const int64_t count = p.batch * one.slots;
  if (slot > count) return;
  if (slot < count) one.lengths[slot] = 0;
  one.tables.set(slot, slot / one.slots * p.tokens + slot % one.slots * one.window);
}

// The first row after `row` with a later start.
__device__ int64_t next_start(const int32_t* starts, int64_t row, int64_t tokens) {
  const int32_t start = starts[row];
  int64_t low = row + 1;
  int64_t high = tokens;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (starts[middle] > start) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

__global__ void __launch_bounds__(kThreads) find_documents_kernel(Documents p) {
  const int64_t row = thread_index();
  if (row >= p.batch * p.tokens) return;
  const int64_t sequence = row / p.tokens;
  const int64_t t = row % p.tokens;
  const int32_t* starts = p.starts + sequence * p.tokens;
  const int64_t start = starts[t];
  const int64_t end = next_start(starts, t, p.tokens);
  const int64_t length = end - start;
  const bool whole = starts[start] == start && (end == p.tokens || starts[end] == end);
  const bool has_slot = whole && length > kShortDocument;
  p.shortened[row] = static_cast<int32_t>(has_slot ? end : start);
  if (!has_slot || t != start) return;
  int at = 0;
  while (at + 1 < p.classes && length > 2 * p.of[at].window) ++at;
  const Slots& one = p.of[at];
  const int64_t slot = sequence * one.slots + start / one.window;
  one.lengths[slot] = static_cast<int32_t>(length);
  one.tables.set(slot, row);
}

struct Shared {
  int64_t batch, rows, first_query, key_count;
  const int32_t* starts;
  int32_t *queries, *keys;
  Tables query_tables, key_tables;
};

__global__ void __launch_bounds__(kThreads) find_shared_kernel(Shared p) {
  const int64_t sequence = thread_index();
  if (sequence > p.batch) return;
  const int64_t base = sequence * p.rows;
  if (sequence == p.batch) {
    p.query_tables.set(sequence, base);
    p.key_tables.set(sequence, base);
    return;
  }
  const int32_t* starts = p.starts + base;
  const int64_t start = starts[p.first_query];
  const bool any = start < p.key_count;
  const int64_t keys = any ? p.key_count - start : 0;
  const int64_t queries = any ? next_start(starts, p.first_query, p.rows) - p.first_query : 0;
  p.queries[sequence] = static_cast<int32_t>(queries);
  p.keys[sequence] = static_cast<int32_t>(keys);
  p.query_tables.set(sequence, base + p.first_query);
  p.key_tables.set(sequence, base + p.key_count - keys);
}

// One thread per element of packed [slots, heads, most].
template <bool pack>
__global__ void __launch_bounds__(kThreads)
    slot_lse_kernel(const int32_t* lengths, const int32_t* rows, int64_t count, int64_t heads,
                    int64_t most, int64_t tokens, float* packed, float* lse) {
  const int64_t at = thread_index();
  if (at >= count * heads * most) return;
  const int64_t t = at % most;
  const int64_t head = at / most % heads;
  const int64_t slot = at / most / heads;
  const bool there = t < lengths[slot];
  const int64_t row = rows[slot] + t;
  const int64_t element = (row / tokens * heads + head) * tokens + row % tokens;
  if (pack) {
    packed[at] = there ? lse[element] : 0;
  } else if (there) {
    lse[element] = packed[at];
  }
}

struct Set {
  int64_t rows, begin, end;
  const int32_t* counts;
  bool from_end;
  const int32_t* shortened;

  __device__ bool has(int64_t sequence, int64_t t) const {
    if (shortened != nullptr) return shortened[sequence * rows + t] > t;
    if (counts == nullptr) return t >= begin && t < end;
    const int64_t count = counts[sequence];
    const int64_t first = from_end ? end - count : begin;
    return t >= first && t < first + count;
  }
};

Set set_of(const RowSet& set) {
  return {set.rows, set.begin, set.end, set.counts, set.from_end, set.shortened};
}

__global__ void __launch_bounds__(kThreads)
    copy_lse_kernel(Set set, int64_t count, const float* lse, float* packed) {
  const int64_t at = thread_index();
  const int64_t width = set.end - set.begin;
  if (at >= count * width) return;
  packed[at] = lse[at / width * set.rows + set.begin + at % width];
}

// One warp per row of a head.
__global__ void __launch_bounds__(kThreads)
    merge_kernel(Set set, int64_t batch, int64_t heads, int dim, bool first, Rows<const bf16> part,
                 const float* part_lse, Rows<float> total, float* lse) {
  const int64_t at = thread_index() / 32;
  if (at >= batch * set.rows * heads) return;
  const int64_t head = at % heads;
  const int64_t row = at / heads;
  const int64_t sequence = row / set.rows;
  const int64_t t = row % set.rows;
  if (!set.has(sequence, t)) return;
  const int64_t line = sequence * heads + head;
  const float found = part_lse[line * (set.end - set.begin) + t - set.begin];
  float& kept = lse[line * set.rows + t];
  float weight = 1;
  float weight_before = 0;
  float merged = found;
  if (!first) {
    const float before = kept;
    const float most = fmaxf(before, found);
    merged = most + logf(expf(before - most) + expf(found - most));
    weight = expf(found - merged);
    weight_before = expf(before - merged);
  }
  __syncwarp();  // all lanes have read the value that the first one overwrites
  const int lane = threadIdx.x % 32;
  if (lane == 0) kept = merged;
  const bf16* from = part.row(row) + head * dim;
  float* to = total.row(row) + head * dim;
  for (int c = lane; c < dim; c += 32) {
    const float value = widen(from[c]) * weight;
    to[c] = first ? value : value + weight_before * to[c];
  }
}

__global__ void __launch_bounds__(kThreads)
    add_kernel(Set set, int64_t batch, int64_t cols, bool add, Rows<const bf16> part,
               Rows<float> sum) {
  const int64_t at = thread_index();
  if (at >= batch * set.rows * cols) return;
  const int64_t row = at / cols;
  const int64_t c = at % cols;
  const bool there = set.has(row / set.rows, row % set.rows);
  if (add && !there) return;
  float& to = sum.row(row)[c];
  const float value = there ? widen(part.row(row)[c]) : 0;
  to = add ? to + value : value;
}

template <bool pack>
void move_slot_lse(CudaStream& stream, const char* op, const DocumentSlots& slots, int64_t batch,
                   int64_t tokens, int64_t heads, float* packed, float* lse) {
  const int64_t count = batch * slots.size.slots;
  const int64_t most = slots.size.most_tokens;
  launch(stream, op, slot_lse_kernel<pack>, blocks_of(count * heads * most), dim3(kThreads), 0,
         slots.lengths, slots.tables[0].offsets, count, heads, most, tokens, packed, lse);
}

}  // namespace

void find_documents(CudaStream& stream, const char* op, int64_t batch, int64_t tokens,
                    const int32_t* starts, int32_t* shortened,
                    const std::vector<DocumentSlots>& classes) {
  TUTTI_CHECK(classes.size() <= kMostClasses, "{}: documents of {} tokens", op, tokens);
  Documents p = {};
  p.batch = batch;
  p.tokens = tokens;
  p.starts = starts;
  p.shortened = shortened;
  p.classes = static_cast<int>(classes.size());
  int64_t most = 0;
  for (size_t i = 0; i < classes.size(); ++i) {
    const DocumentSlots& one = classes[i];
    p.of[i] = {one.size.window_tokens, one.size.slots, one.lengths, tables_of(one.tables)};
    most = std::max(most, batch * one.size.slots + 1);
  }
  launch(stream, op, clear_slots_kernel, blocks_of(most, p.classes), dim3(kThreads), 0, p);
  launch(stream, op, find_documents_kernel, blocks_of(batch * tokens), dim3(kThreads), 0, p);
}

void find_shared_document(CudaStream& stream, const char* op, int64_t batch, int64_t rows,
                          int64_t first_query, int64_t key_count, const int32_t* starts,
                          const SharedDocument& found) {
  const Shared p = {batch,
                    rows,
                    first_query,
                    key_count,
                    starts,
                    found.queries,
                    found.keys,
                    tables_of(found.query_tables),
                    tables_of(found.key_tables)};
  launch(stream, op, find_shared_kernel, blocks_of(batch + 1), dim3(kThreads), 0, p);
}

void unpack_lse(CudaStream& stream, const char* op, const DocumentSlots& slots, int64_t batch,
                int64_t tokens, int64_t heads, const float* packed, float* lse) {
  move_slot_lse<false>(stream, op, slots, batch, tokens, heads, const_cast<float*>(packed), lse);
}

void pack_lse(CudaStream& stream, const char* op, const DocumentSlots& slots, int64_t batch,
              int64_t tokens, int64_t heads, const float* lse, float* packed) {
  move_slot_lse<true>(stream, op, slots, batch, tokens, heads, packed, const_cast<float*>(lse));
}

void copy_lse(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, int64_t heads,
              const float* lse, float* packed) {
  launch(stream, op, copy_lse_kernel, blocks_of(batch * heads * (set.end - set.begin)),
         dim3(kThreads), 0, set_of(set), batch * heads, lse, packed);
}

void merge_part(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, int64_t heads,
                bool first, const Matrix& part, const float* part_lse, const Matrix& total,
                float* lse) {
  launch(stream, op, merge_kernel, blocks_of(batch * set.rows * heads * 32), dim3(kThreads), 0,
         set_of(set), batch, heads, static_cast<int>(part.cols / heads), first,
         rows_of<const bf16>(part), part_lse, rows_of<float>(total), lse);
}

void add_part(CudaStream& stream, const char* op, const RowSet& set, int64_t batch, bool add,
              const Matrix& part, const Matrix& sum) {
  launch(stream, op, add_kernel, blocks_of(batch * set.rows * part.cols), dim3(kThreads), 0,
         set_of(set), batch, part.cols, add, rows_of<const bf16>(part), rows_of<float>(sum));
}

}  // namespace tutti::engine
