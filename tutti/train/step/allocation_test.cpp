// Nothing is allocated after warm-up: this program looks at every call of the heap's functions
// while steps run. Kept apart from the other tests because it replaces malloc.
//
// oneDNN allocates inside each call (argument tables; packing buffers of its f32 products) and
// gives no way to hand it that memory: calls with libdnnl on their stack are the library's own and
// counted apart.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>

#include "tutti/train/testing/test_support.h"

// The names that glibc gives its own allocator.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> own_calls{0};
std::atomic<int64_t> own_bytes{0};
std::atomic<int64_t> library_calls{0};
thread_local bool looking = false;  // at the stack, which may itself allocate

bool called_by_library() {
  void* frames[24];
  const int depth = backtrace(frames, 24);
  for (int i = 0; i < depth; ++i) {
    Dl_info info{};
    if (dladdr(frames[i], &info) != 0 && std::strstr(info.dli_fname, "libdnnl") != nullptr) {
      return true;
    }
  }
  return false;
}

void count(size_t size) {
  if (!counting.load(std::memory_order_relaxed) || looking) return;
  looking = true;
  if (called_by_library()) {
    ++library_calls;
  } else {
    ++own_calls;
    own_bytes += static_cast<int64_t>(size);
  }
  looking = false;
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

TEST(Allocation, TheHookCounts) {
  counting = true;
  own_calls = 0;
  auto* probe = new std::vector<int>(10);
  counting = false;
  EXPECT_GE(own_calls, 2);
  delete probe;
}

void expect_no_allocations(const spec::Recipe& recipe, const TrainerOptions& options = {}) {
  Trainer trainer(recipe, {}, options);
  trainer.initialize();
  testing::randomize_teacher(trainer);
  testing::RandomBatches batches(recipe, 1);
  const BatchView batch = batches.next();
  const BatchSource source = [&batch] { return batch; };
  for (int64_t update = 1; update <= 2; ++update) trainer.step(source, 1e-3, update);
  trainer.evaluate(source, 1);

  own_calls = own_bytes = library_calls = 0;
  counting = true;
  for (int64_t update = 3; update <= 5; ++update) trainer.step(source, 1e-3, update);
  trainer.evaluate(source, 2);
  counting = false;
  EXPECT_EQ(own_calls, 0) << own_bytes << " bytes; " << library_calls << " calls of oneDNN";
}

TEST(Allocation, StepsAllocateNothingAfterWarmUp) {
  for (spec::Recipe recipe :
       {testing::gpt_recipe(), testing::llama_recipe(), testing::mixed_moe_recipe(),
        testing::distilled(testing::gpt_recipe(), testing::llama_recipe().model)}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      recipe.precision = precision;
      recipe.batch = {6, 3, 7};
      recipe.model.dropout = 0.1;
      expect_no_allocations(recipe);
    }
  }
}

TEST(Allocation, EnqueuedStepsAllocateNothing) {
  for (spec::Recipe recipe :
       {testing::gpt_recipe(),
        testing::distilled(testing::mixed_moe_recipe(), testing::llama_recipe().model)}) {
    recipe.batch = {6, 3, 7};
    expect_no_allocations(recipe, {.enqueue_steps = true});
  }
}

}  // namespace
}  // namespace tutti::train
