#include "tutti/engine/testing/test_support.h"

#include <unistd.h>

#include <cstdlib>
#include <list>

#include "tutti/base/file.h"
#ifdef TUTTI_TEST_ON_GPU
#include "tutti/engine/testing/device_memory.h"
#endif

namespace tutti::engine::testing {
namespace {

#ifdef TUTTI_TEST_ON_GPU
// Not pinned memory, which kernels would access over the bus, unlike in training. A pool allocates
// its chunks here.
class DeviceMemory final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t /*alignment*/) override {  // blocks are aligned to pages
    return allocate_test_memory(bytes);
  }
  void do_deallocate(void* data, size_t /*bytes*/, size_t /*alignment*/) override {
    free_test_memory(data);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};
#else
// On the host stand-in: blocks of pinned memory, from which a pool allocates its chunks.
class DeviceMemory final : public std::pmr::memory_resource {
  void* do_allocate(size_t bytes, size_t /*alignment*/) override {  // blocks are aligned to pages
    return blocks_.emplace_back("test", static_cast<int64_t>(bytes), ArenaKind::pinned).data();
  }
  void do_deallocate(void* data, size_t /*bytes*/, size_t /*alignment*/) override {
    blocks_.remove_if([data](const Arena& block) { return block.data() == data; });
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::list<Arena> blocks_;
};
#endif

}  // namespace

const Backend& test_backend() {
  static const Backend& backend = []() -> const Backend& {
    const char* name = std::getenv("TUTTI_TEST_DEVICE");
    return find_backend(name == nullptr ? "cpu" : name);
  }();
  return backend;
}

bool on_cpu() { return &test_backend() == &cpu_backend(); }

std::pmr::memory_resource* test_memory() {
  if (on_cpu()) return std::pmr::new_delete_resource();
  // Never destroyed: tests have static operands.
  static auto* const memory = new DeviceMemory;
#if defined(__SANITIZE_ADDRESS__)
  return memory;  // ASan knows the bounds of blocks, but not of parts that a pool cuts from them
#endif
  static auto* const pool = new std::pmr::unsynchronized_pool_resource(
      {.max_blocks_per_chunk = 64, .largest_required_pool_block = size_t{1} << 20}, memory);
  return pool;
}

namespace {

bool rows_are_aligned = false;

struct TuningFolder {
  ~TuningFolder() { files.remove_tree(path); }
  FileSystem& files = posix_file_system();  // constructed first, so destroyed after this object
  const std::string path = ::testing::TempDir() + "tutti-tuning-" + std::to_string(::getpid());
};

}  // namespace

void align_rows(bool aligned) { rows_are_aligned = aligned; }

int64_t row_stride(int64_t cols, int64_t gap) {
  if (gap == 0 || !rows_are_aligned) return cols + gap;
  return (cols + gap + kAlignedElements - 1) / kAlignedElements * kAlignedElements;
}

Stream& test_stream() {
  static Stream* const stream = make_test_stream(2).release();
  return *stream;
}

std::unique_ptr<Stream> make_test_stream(int threads) {
  // Streams share algorithm choices through a folder, as ranks do.
  static const TuningFolder tuning;
  return test_backend().make_stream(
      {.threads = threads, .blocking = true, .tuning_folder = tuning.path});
}

}  // namespace tutti::engine::testing
