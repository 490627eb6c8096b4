#include "tutti/comm/world/thread_world.h"

#include <exception>
#include <thread>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::comm {
namespace {

bool is_echo(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::peer;
  } catch (...) {
    return false;
  }
}

}  // namespace

void run_threads(const spec::Mesh& mesh, const RankBody& body, const WorldOptions& options,
                 int threads, const Arrange& arrange) {
  const auto count = static_cast<size_t>(mesh.world());
  const std::shared_ptr<Store> store = make_memory_store();
  const std::shared_ptr<SegmentSource> segments = make_thread_segments();
  std::vector<std::exception_ptr> failures(count);
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < count; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        WorldOptions own = options;
        own.rank = static_cast<int64_t>(rank);
        own.mesh = mesh;
        own.store = store;
        own.segments = segments;
        own.threads = true;
        if (arrange) arrange(own);
        World world(std::move(own));
        const std::unique_ptr<engine::Stream> stream = engine::make_cpu_stream(threads);
        try {
          body(world, *stream);
        } catch (const std::exception& error) {
          world.abort(error.what());
          throw;
        }
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  std::exception_ptr first;
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr && (first == nullptr || (is_echo(first) && !is_echo(failure)))) {
      first = failure;
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace tutti::comm
