// NCCL on the host, for communicators that block, beside the CUDA runtime there
// (engine/testing/on_host/grid.h says what for).
//
// A call is work of its stream that is done when the streams of all its ranks have come to theirs;
// a wait advances them (queue.h). Calls of one group end together. As in NCCL, ranks of a
// communicator have a device each; creating one waits for all its ranks; the first call of a kind
// connects, for which it waits until the other ranks make theirs; and a call starts on its device
// when the one launched before it has started (launches.h). What NCCL leaves undefined is an error
// here: memory that no device reaches, two threads that launch on a device at a time; and ranks
// that call different things, or in different orders, end the process.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/comm/testing/on_host/exchange.h"
#include "tutti/comm/testing/on_host/launches.h"
#include "tutti/engine/testing/on_host/device_memory_guard.h"
#include "tutti/engine/testing/on_host/queue.h"

namespace on_host = tutti::engine::on_host;
using tutti::comm::on_host::Exchange;
using tutti::comm::on_host::is_complete;
using tutti::comm::on_host::Kind;
using tutti::comm::on_host::kind_name;
using tutti::comm::on_host::Launch;
using tutti::comm::on_host::Launches;
using tutti::comm::on_host::LaunchingThread;
using tutti::comm::on_host::Part;
using tutti::comm::on_host::Shape;

namespace {

// What the communicators of one id share.
struct Meeting {
  int arrived = 0;
  std::set<int> devices;
  std::deque<Exchange> collectives;
  std::map<std::pair<int, int>, std::deque<Exchange>> messages;  // (from, to)
};

// A rank's own part in an exchange.
struct Side {
  Exchange* exchange = nullptr;
  size_t part = 0;
};

// Guards everything here. Never destroyed, as the next: a thread may wait when the process ends.
std::mutex& all = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;
Launches& launches = *new Launches;

}  // namespace

struct ncclComm {
  std::shared_ptr<Meeting> meeting;
  int rank = 0, size = 0, device = 0;
  size_t collectives = 0;                 // calls so far
  std::set<Kind> connected;               // of these
  std::map<int, size_t> sent, received;   // messages, by peer
  std::map<cudaStream_t, uint64_t> last;  // position of the last call on a stream
  size_t unfinished = 0;                  // calls that its streams have not done
  bool is_finalizing = false, is_aborted = false;
};

namespace {

// ---- Work and calls -----------------------------------------------------------------------------

// The work of a call: whether it is done.
bool attempt(ncclComm& comm, Launch& launch, const std::vector<Side>& sides) {
  std::shared_ptr<Launch> before;
  {
    const std::lock_guard lock(all);
    if (!comm.is_aborted) before = launch.before;
  }
  if (before != nullptr) {
    on_host::try_advance(before->stream, before->position);
    const std::lock_guard lock(all);
    if (!before->has_started && !comm.is_aborted) return false;
  }
  const auto look = [&](std::vector<std::pair<cudaStream_t, uint64_t>>& missing) {
    const std::lock_guard lock(all);
    bool all_done = true;
    Launches::start(launch);
    for (const Side& side : sides) side.exchange->parts[side.part].has_come = true;
    for (const Side& side : sides) {
      if (comm.is_aborted || is_complete(*side.exchange)) continue;
      all_done = false;
      for (const Part& part : side.exchange->parts) {
        if (part.is_given && !part.has_come) missing.emplace_back(part.stream, part.position);
      }
    }
    if (all_done) --comm.unfinished;
    return all_done;
  };
  std::vector<std::pair<cudaStream_t, uint64_t>> missing;
  if (look(missing)) return true;
  if (missing.empty()) return false;
  for (const auto& [stream, position] : missing) on_host::try_advance(stream, position);
  missing.clear();
  return look(missing);
}

thread_local std::string last_error;
ncclResult_t refused(ncclResult_t result, std::string why) {
  last_error = std::move(why);
  return result;
}

// Of one thread: what it has called since ncclGroupStart().
struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Side> sides;
  bool connects = false;  // with a peer of theirs
};
thread_local Group group;

ncclResult_t not_alone() {
  return refused(ncclInvalidUsage, "two threads launch on one device at a time");
}

// With the lock.
ncclResult_t state_of(const ncclComm& comm) {
  if (comm.is_aborted) return refused(ncclInvalidUsage, "it was aborted");
  if (comm.meeting->devices.size() < static_cast<size_t>(comm.size)) {
    return refused(ncclInvalidUsage, "two ranks have the same device");
  }
  return ncclSuccess;
}

// With the lock, which others have meanwhile: until all ranks have made theirs.
ncclResult_t connect(std::unique_lock<std::mutex>& lock, const ncclComm& comm,
                     const std::vector<Side>& sides) {
  const auto is_given = [](const Side& side) {
    const std::vector<Part>& parts = side.exchange->parts;
    return std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.is_given; });
  };
  changed.wait(
      lock, [&] { return comm.is_aborted || std::all_of(sides.begin(), sides.end(), is_given); });
  return comm.is_aborted ? refused(ncclInternalError, "it was aborted while it connected")
                         : ncclSuccess;
}

// Whether a call may be made.
ncclResult_t check(ncclComm_t comm, cudaStream_t stream) {
  if (group.depth == 0 || group.sides.empty()) {
    const std::lock_guard lock(all);
    if (const ncclResult_t state = state_of(*comm); state != ncclSuccess) return state;
    if (comm->is_finalizing) return refused(ncclInvalidUsage, "it is being finalized");
  }
  if (on_host::is_captured(stream)) return refused(ncclInvalidUsage, "the stream is captured");
  if (on_host::device_of(stream) != comm->device) {
    return refused(ncclInvalidArgument, "the stream is of another device");
  }
  return ncclSuccess;
}

bool is_reached(const void* data, size_t count) {
  if (count == 0) return true;
  cudaPointerAttributes attributes = {};
  cudaPointerGetAttributes(&attributes, data);
  return attributes.type != cudaMemoryTypeUnregistered;
}

// With the lock. The exchange number `number` of a row that ranks come to in any order.
Exchange& exchange_of(std::deque<Exchange>& row, size_t number, const Shape& shape, size_t parts) {
  if (row.size() <= number) row.push_back({shape, std::vector<Part>(parts)});
  Exchange& exchange = row.at(number);
  TUTTI_CHECK(exchange.shape == shape, "ranks call different things: {} of {} and {} of {} items",
              kind_name(exchange.shape.kind), exchange.shape.count, kind_name(shape.kind),
              shape.count);
  return exchange;
}

// With the lock.
void give(ncclComm_t comm, cudaStream_t stream, const std::vector<Side>& sides) {
  ++comm->unfinished;
  const std::shared_ptr<Launch> launch = launches.add(comm->device);
  const uint64_t position = on_host::enqueue_attempts(
      stream, [comm, launch, sides] { return attempt(*comm, *launch, sides); });
  launch->stream = stream;
  launch->position = position;
  comm->last[stream] = position;
  for (const Side& side : sides) {
    Part& part = side.exchange->parts[side.part];
    part.stream = stream;
    part.position = position;
    part.is_given = true;
  }
  changed.notify_all();
}

ncclResult_t collective(const Shape& shape, const void* send, size_t send_count, void* receive,
                        size_t receive_count, ncclComm_t comm, cudaStream_t stream) {
  const LaunchingThread thread(comm->device);
  if (!thread.is_alone()) return not_alone();
  TUTTI_CHECK(group.depth == 0, "a {} in a group", kind_name(shape.kind));
  if (const ncclResult_t trouble = check(comm, stream); trouble != ncclSuccess) return trouble;
  if (!is_reached(send, send_count) || !is_reached(receive, receive_count)) {
    return refused(ncclInvalidArgument, "memory that no device reaches");
  }
  std::unique_lock lock(all);
  Exchange& exchange = exchange_of(comm->meeting->collectives, comm->collectives++, shape,
                                   static_cast<size_t>(comm->size));
  const auto rank = static_cast<size_t>(comm->rank);
  exchange.parts[rank].send = send;
  exchange.parts[rank].receive = receive;
  launches.note(comm->device, comm->meeting->devices,
                {comm->meeting.get(), &exchange, kind_name(shape.kind)});
  give(comm, stream, {{&exchange, rank}});
  if (!comm->connected.insert(shape.kind).second) return ncclSuccess;
  return connect(lock, *comm, {{&exchange, rank}});
}

ncclResult_t message(const void* send, void* receive, size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, cudaStream_t stream) {
  const bool sends = send != nullptr;
  if (const ncclResult_t trouble = check(comm, stream); trouble != ncclSuccess) return trouble;
  if (!is_reached(sends ? send : receive, count)) {
    return refused(ncclInvalidArgument, "memory that no device reaches");
  }
  std::unique_lock lock(all);
  const auto way = sends ? std::pair(comm->rank, peer) : std::pair(peer, comm->rank);
  const size_t number = sends ? comm->sent[peer]++ : comm->received[peer]++;
  Exchange& exchange =
      exchange_of(comm->meeting->messages[way], number, {Kind::message, count, type}, 2);
  const Side side = {&exchange, sends ? size_t{0} : 1};
  exchange.parts[side.part].send = send;
  exchange.parts[side.part].receive = receive;
  if (group.depth == 0) {
    give(comm, stream, {side});
    return number == 0 ? connect(lock, *comm, {side}) : ncclSuccess;
  }
  TUTTI_CHECK(group.sides.empty() || (group.comm == comm && group.stream == stream),
              "a group of calls on several communicators or streams");
  group.comm = comm;
  group.stream = stream;
  group.sides.push_back(side);
  group.connects = group.connects || number == 0;
  return ncclSuccess;
}

}  // namespace

// ---- Communicators ------------------------------------------------------------------------------

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
  }
  return "unknown";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static uint64_t count = 0;
  const std::lock_guard lock(all);
  ++count;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &count, sizeof count);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static auto& meetings = *new std::map<std::string, std::shared_ptr<Meeting>>;
  TUTTI_CHECK(
      config->blocking == 1,
      "a communicator that does not block, whose calls NCCL launches from threads of its own");
  std::unique_lock lock(all);
  std::shared_ptr<Meeting>& meeting = meetings[std::string(id.internal, sizeof id.internal)];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>();
  // Kept: the work of streams names it.
  static auto& communicators = *new std::deque<ncclComm>;
  ncclComm_t const made = &communicators.emplace_back();
  made->meeting = meeting;
  made->rank = rank;
  made->size = size;
  made->device = on_host::current_device();
  meeting->devices.insert(made->device);
  ++meeting->arrived;
  changed.notify_all();
  changed.wait(lock, [&] { return made->meeting->arrived == size; });
  const ncclResult_t state = state_of(*made);
  if (state == ncclSuccess) *comm = made;
  return state;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(all);
  *state = state_of(*comm);
  return ncclSuccess;
}

// Waits for its calls, whose streams advance meanwhile.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const LaunchingThread thread(comm->device);
  if (!thread.is_alone()) return not_alone();
  for (;;) {
    std::map<cudaStream_t, uint64_t> last;
    {
      std::unique_lock lock(all);
      comm->is_finalizing = true;
      if (comm->is_aborted) return refused(ncclInvalidUsage, "it was aborted");
      if (comm->unfinished == 0) return ncclSuccess;
      last = comm->last;
      changed.wait_for(lock, std::chrono::milliseconds(1));
    }
    const on_host::DeviceMemoryAccess access;
    for (const auto& [stream, position] : last) on_host::try_advance(stream, position);
  }
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard lock(all);
  if (!comm->is_finalizing || comm->unfinished > 0) {
    return refused(ncclInvalidUsage, "it is not finalized");
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(all);
  comm->is_aborted = true;
  launches.forget(comm->meeting.get());
  changed.notify_all();
  return ncclSuccess;
}

// ---- Collectives and messages -------------------------------------------------------------------

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  TUTTI_CHECK(group.depth > 0, "the end of no group");
  if (--group.depth > 0) return ncclSuccess;
  const Group calls = std::exchange(group, {});
  if (calls.sides.empty()) return ncclSuccess;
  const LaunchingThread thread(calls.comm->device);
  if (!thread.is_alone()) return not_alone();
  std::unique_lock lock(all);
  give(calls.comm, calls.stream, calls.sides);
  return calls.connects ? connect(lock, *calls.comm, calls.sides) : ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduce, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::all_reduce, count, type, reduce}, send, count, receive, count, comm,
                    stream);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t reduce, ncclComm_t comm,
                               cudaStream_t stream) {
  return collective({Kind::reduce_scatter, receive_count, type, reduce}, send,
                    receive_count * static_cast<size_t>(comm->size), receive, receive_count, comm,
                    stream);
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::all_gather, send_count, type}, send, send_count, receive,
                    send_count * static_cast<size_t>(comm->size), comm, stream);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return collective({Kind::broadcast, count, type, ncclSum, root}, send,
                    comm->rank == root ? count : 0, receive, count, comm, stream);
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  const LaunchingThread thread(comm->device);
  return thread.is_alone() ? message(data, nullptr, count, type, peer, comm, stream) : not_alone();
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const LaunchingThread thread(comm->device);
  return thread.is_alone() ? message(nullptr, data, count, type, peer, comm, stream) : not_alone();
}
