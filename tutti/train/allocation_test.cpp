// Nothing is allocated after warm-up: this program counts every call of the heap's functions while
// steps run. Kept apart from the other tests because it replaces malloc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>

#include "tutti/train/test_support.h"

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> calls{0};
std::atomic<int64_t> bytes{0};
std::atomic<int64_t> largest{0};

void count(size_t size) {
  if (!counting.load(std::memory_order_relaxed)) return;
  const auto amount = static_cast<int64_t>(size);
  ++calls;
  bytes += amount;
  int64_t seen = largest.load();
  while (seen < amount && !largest.compare_exchange_weak(seen, amount)) {
  }
}

}  // namespace

extern "C" {
void* malloc(size_t size) {
  count(size);
  return __libc_malloc(size);
}
void* calloc(size_t items, size_t size) {
  count(items * size);
  return __libc_calloc(items, size);
}
void* realloc(void* old, size_t size) {
  count(size);
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  count(size);
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count(size);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  count(size);
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
}

namespace tutti::train {
namespace {

// What oneDNN itself takes per call of a primitive (argument tables of a few hundred bytes, freed
// at once) is the library's; anything larger would be a buffer of ours.
constexpr int64_t kLibraryBytes = 1024;

TEST(Allocation, TheHookCounts) {
  counting = true;
  calls = 0;
  auto* probe = new std::vector<int>(10);
  counting = false;
  EXPECT_GE(calls, 2);
  delete probe;
}

TEST(Allocation, StepsAllocateNothingAfterWarmUp) {
  for (spec::Recipe recipe : {testing::gpt_recipe(), testing::llama_recipe()}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      recipe.batch = {6, 3, 7};
      recipe.model.dropout = 0.1;
      Trainer trainer(recipe);
      trainer.initialize();
      testing::RandomBatches batches(recipe, 1);
      const BatchView batch = batches.next();
      const BatchSource source = [&batch] { return batch; };
      for (int64_t update = 1; update <= 2; ++update) trainer.step(source, 1e-3, update);
      trainer.evaluate(source, 1);

      calls = bytes = largest = 0;
      counting = true;
      for (int64_t update = 3; update <= 5; ++update) trainer.step(source, 1e-3, update);
      trainer.evaluate(source, 2);
      counting = false;
      EXPECT_LE(largest, kLibraryBytes) << calls << " calls, " << bytes << " bytes";
      RecordProperty("heap_calls", std::to_string(calls.load()));
      RecordProperty("heap_bytes", std::to_string(bytes.load()));
    }
  }
}

}  // namespace
}  // namespace tutti::train
