#include "tutti/comm/testing/process_roles.h"

#include <cstdlib>
#include <fstream>

#include "tutti/base/clock.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/comm/testing/test_support.h"
#include "tutti/engine/arena.h"

namespace tutti::comm::testing {
namespace {

std::string output_path(int64_t rank) {
  return fmt::format("{}/{}", std::getenv("TUTTI_TEST_FOLDER"), rank);
}

// Every collective on `memory`, of which all ranks have the same amount: 0 when all are right.
int check_collectives(Group& group, Stream& stream, char* memory, DType dtype, int64_t count) {
  const int size = group.size();
  const auto view = [&](Buffer& buffer, int64_t offset) -> Vector {
    char* at = memory + offset;
    std::memcpy(at, buffer.view().data, static_cast<size_t>(buffer.view().bytes()));
    return {at, dtype, buffer.count()};
  };
  const auto is_same = [](const Vector& data, Buffer& expected) {
    return std::memcmp(data.data, expected.view().data, static_cast<size_t>(data.bytes())) == 0;
  };
  const int64_t half = size * (count * 8 / 4096 + 1) * 4096;
  std::vector<Buffer> sends = buffers_of_ranks(size, dtype, count, 5);
  Buffer sum = reduced(sends, dtype, Reduce::sum);

  Vector mine = view(sends[static_cast<size_t>(group.rank())], 0);
  group.all_reduce(stream, mine, mine).wait(stream);
  if (!is_same(mine, sum)) return 1;

  mine = view(sends[static_cast<size_t>(group.rank())], 0);
  const Vector all = {memory + half, dtype, size * count};
  group.all_gather(stream, mine, all).wait(stream);
  const int64_t item = dtype_bytes(dtype);
  for (int other = 0; other < size; ++other) {
    const Vector part = {memory + half + other * count * item, dtype, count};
    if (!is_same(part, sends[static_cast<size_t>(other)])) return 2;
  }
  group.reduce_scatter(stream, all, mine).wait(stream);  // every rank gave the same
  Buffer expected(dtype, count);
  std::vector<Buffer> same;
  for (int other = 0; other < size; ++other)
    same.push_back(sends[static_cast<size_t>(group.rank())]);
  expected = reduced(same, dtype, Reduce::sum);
  if (!is_same(mine, expected)) return 3;

  mine = view(sends[static_cast<size_t>(group.rank())], 0);
  group.broadcast(stream, mine, size - 1).wait(stream);
  if (!is_same(mine, sends[static_cast<size_t>(size - 1)])) return 4;

  mine = view(sends[static_cast<size_t>(group.rank())], 0);
  const Vector got = {memory + half, dtype, count};
  const int previous = (group.rank() + size - 1) % size;
  const Ticket sent = group.send(stream, mine, (group.rank() + 1) % size);
  group.receive(stream, got, previous).wait(stream);
  sent.wait(stream);
  if (!is_same(got, sends[static_cast<size_t>(previous)])) return 5;
  return 0;
}

int collectives(World& world, Stream& stream) {
  const int64_t count = 100003;
  const int64_t bytes = 2 * world.size() * (count * 8 / 4096 + 1) * 4096;
  const engine::Arena shared("shared", bytes, engine::ArenaKind::shared);
  const engine::Arena later("later", bytes, engine::ArenaKind::shared);
  const engine::Arena own("own", bytes);
  world.share(shared);
  Group& group = world.all();
  for (const engine::Arena* arena : {&own, &shared, &later}) {
    if (arena == &later) world.share(later);
    for (const DType dtype : kTypes) {
      for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{5001}, count}) {
        const int wrong =
            check_collectives(group, stream, static_cast<char*>(arena->data()), dtype, n);
        if (wrong != 0) {
          fail(ErrorKind::corrupt, "arena {}, {} {}: check {}", arena->name(), n, dtype_name(dtype),
               wrong);
        }
      }
    }
  }
  // Some buffers within reach, some not.
  const engine::Arena& mixed = world.rank() == 0 ? shared : own;
  return check_collectives(group, stream, static_cast<char*>(mixed.data()), DType::f32, count) == 0
             ? role_done
             : role_wrong;
}

// Reduces until something happens.
int reduce_forever(World& world, Stream& stream) {
  const engine::Arena arena("data", 1 << 20, engine::ArenaKind::shared);
  world.share(arena);
  const Vector data = {arena.data(), DType::f32, arena.bytes() / 4};
  Group& group = world.all();
  group.all_reduce(stream, data, data)
      .wait(stream);  // a rank that dies later dies in or after a call
  std::ofstream(output_path(world.rank()) + ".ready") << "ready";
  while (true) group.all_reduce(stream, data, data).wait(stream);
}

int reduce_for_a_while(World& world, Stream& stream) {
  Group& group = world.all();
  std::ofstream(output_path(world.rank()) + ".ready") << "ready";
  for (int64_t call = 1; call <= 100; ++call) {
    Buffer one(DType::i64, 1);
    one.set(0, static_cast<double>(call));
    group.all_reduce(stream, one.view(), one.view()).wait(stream);
    if (one.at(0) != static_cast<double>(call * world.size())) return role_wrong;
    sleep_seconds(0.005);
  }
  return role_done;
}

}  // namespace

int run_role(const std::string& role) {
  int64_t rank = -1;
  try {
    const LaunchEnvironment environment = read_launch_environment();
    rank = environment.rank;
    const std::unique_ptr<World> world = join_world(environment, mesh_of(environment.size), 20);
    const auto stream = engine::make_cpu_stream(1);
    if (role == "collectives") return collectives(*world, *stream);
    if (role == "reduce_forever") return reduce_forever(*world, *stream);
    if (role == "reduce_for_a_while") return reduce_for_a_while(*world, *stream);
    return role_wrong;
  } catch (const Error& error) {
    std::ofstream(output_path(rank)) << error.what();
    return error.kind() == ErrorKind::peer ? role_peer_error : role_other_error;
  }
}

}  // namespace tutti::comm::testing
