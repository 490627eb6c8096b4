// NCCL on the host, for communicators that do not block, beside the CUDA runtime there
// (engine/cuda/on_host/grid.h says what for).
//
// A call is work of its stream that is done when the streams of all its ranks have come to theirs;
// who waits for it lets them come (queue.h). Calls of one group end together. As in NCCL, ranks of
// a communicator have a device each, its first call with a rank is under way (ncclInProgress) until
// that one makes its own, and one that is under way takes no other call. What NCCL leaves undefined
// is an error here: memory that no device reaches, calls of two threads at a time; and ranks that
// call different things end the process.
#include <nccl.h>

#include <algorithm>
#include <atomic>
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
#include "tutti/comm/on_host/exchange.h"
#include "tutti/engine/cuda/on_host/device_memory_guard.h"
#include "tutti/engine/cuda/on_host/queue.h"

namespace on_host = tutti::engine::on_host;
using tutti::comm::on_host::Exchange;
using tutti::comm::on_host::is_complete;
using tutti::comm::on_host::Kind;
using tutti::comm::on_host::kind_name;
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

std::mutex all;  // guards everything here

}  // namespace

struct ncclComm {
  std::shared_ptr<Meeting> meeting;
  int rank = 0, size = 0, device = 0;
  size_t collectives = 0;                 // calls so far
  std::map<int, size_t> sent, received;   // messages, by peer
  std::set<int> peers;                    // of its messages
  std::map<cudaStream_t, uint64_t> last;  // place of the last call on a stream
  size_t unfinished = 0;                  // calls that its streams have not done
  bool is_finalizing = false, is_aborted = false;
};

namespace {

// ---- Work and calls -----------------------------------------------------------------------------

// The work of a call: whether it is done.
bool attempt(ncclComm& comm, const std::vector<Side>& sides) {
  const auto look = [&](std::vector<std::pair<cudaStream_t, uint64_t>>& missing) {
    const std::lock_guard lock(all);
    bool all_done = true;
    for (const Side& side : sides) side.exchange->parts[side.part].has_come = true;
    for (const Side& side : sides) {
      if (comm.is_aborted || is_complete(*side.exchange)) continue;
      all_done = false;
      for (const Part& part : side.exchange->parts) {
        if (part.is_given && !part.has_come) missing.emplace_back(part.stream, part.place);
      }
    }
    if (all_done) --comm.unfinished;
    return all_done;
  };
  std::vector<std::pair<cudaStream_t, uint64_t>> missing;
  if (look(missing)) return true;
  if (missing.empty()) return false;
  for (const auto& [stream, place] : missing) on_host::try_advance(stream, place);
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
};
thread_local Group group;

// One call of a process at a time (NCCL user guide, "Thread Safety").
class Turn {
 public:
  Turn() : is_mine_(!taken().exchange(true)) {}
  ~Turn() {
    if (is_mine_) taken().store(false);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return is_mine_; }

 private:
  static std::atomic<bool>& taken() {
    static std::atomic<bool> flag{false};
    return flag;
  }
  bool is_mine_;
};
ncclResult_t not_alone() { return refused(ncclInvalidUsage, "two threads call at a time"); }

// With the lock.
bool has_met(const ncclComm& comm, int peer) {
  const auto given = [&](std::pair<int, int> way, size_t part) {
    const auto found = comm.meeting->messages.find(way);
    return found != comm.meeting->messages.end() && found->second.front().parts[part].is_given;
  };
  return given({comm.rank, peer}, 1) || given({peer, comm.rank}, 0);
}

// With the lock.
ncclResult_t state_of(const ncclComm& comm) {
  const Meeting& meeting = *comm.meeting;
  if (comm.is_aborted) return refused(ncclInvalidUsage, "it was aborted");
  if (meeting.arrived < comm.size) return ncclInProgress;
  if (meeting.devices.size() < static_cast<size_t>(comm.size)) {
    return refused(ncclInvalidUsage, "two ranks have the same device");
  }
  if (comm.is_finalizing && comm.unfinished > 0) return ncclInProgress;
  if (comm.collectives > 0) {
    const std::vector<Part>& first = meeting.collectives.front().parts;
    if (!std::all_of(first.begin(), first.end(), [](const Part& part) { return part.is_given; })) {
      return ncclInProgress;
    }
  }
  const bool met = std::all_of(comm.peers.begin(), comm.peers.end(),
                               [&](int peer) { return has_met(comm, peer); });
  return met ? ncclSuccess : ncclInProgress;
}

// Whether a call may be made.
ncclResult_t check(ncclComm_t comm, cudaStream_t stream) {
  if (group.depth == 0 || group.sides.empty()) {
    const std::lock_guard lock(all);
    const ncclResult_t state = state_of(*comm);
    if (state == ncclInProgress) return refused(ncclInvalidUsage, "it has a call under way");
    if (state != ncclSuccess) return state;
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
  const uint64_t place =
      on_host::enqueue_attempts(stream, [comm, sides] { return attempt(*comm, sides); });
  comm->last[stream] = place;
  for (const Side& side : sides) {
    Part& part = side.exchange->parts[side.part];
    part.stream = stream;
    part.place = place;
    part.is_given = true;
  }
}

ncclResult_t collective(const Shape& shape, const void* send, size_t send_count, void* receive,
                        size_t receive_count, ncclComm_t comm, cudaStream_t stream) {
  const Turn turn;
  if (!turn) return not_alone();
  TUTTI_CHECK(group.depth == 0, "a {} in a group", kind_name(shape.kind));
  if (const ncclResult_t trouble = check(comm, stream); trouble != ncclSuccess) return trouble;
  if (!is_reached(send, send_count) || !is_reached(receive, receive_count)) {
    return refused(ncclInvalidArgument, "memory that no device reaches");
  }
  const std::lock_guard lock(all);
  Exchange& exchange = exchange_of(comm->meeting->collectives, comm->collectives++, shape,
                                   static_cast<size_t>(comm->size));
  const auto rank = static_cast<size_t>(comm->rank);
  exchange.parts[rank].send = send;
  exchange.parts[rank].receive = receive;
  give(comm, stream, {{&exchange, rank}});
  return comm->collectives == 1 ? ncclInProgress : ncclSuccess;
}

ncclResult_t message(const void* send, void* receive, size_t count, ncclDataType_t type, int peer,
                     ncclComm_t comm, cudaStream_t stream) {
  const bool sends = send != nullptr;
  if (const ncclResult_t trouble = check(comm, stream); trouble != ncclSuccess) return trouble;
  if (!is_reached(sends ? send : receive, count)) {
    return refused(ncclInvalidArgument, "memory that no device reaches");
  }
  const std::lock_guard lock(all);
  const auto way = sends ? std::pair(comm->rank, peer) : std::pair(peer, comm->rank);
  const size_t number = sends ? comm->sent[peer]++ : comm->received[peer]++;
  Exchange& exchange =
      exchange_of(comm->meeting->messages[way], number, {Kind::message, count, type}, 2);
  const Side side = {&exchange, sends ? size_t{0} : 1};
  exchange.parts[side.part].send = send;
  exchange.parts[side.part].receive = receive;
  comm->peers.insert(peer);
  if (group.depth == 0) {
    give(comm, stream, {side});
  } else {
    TUTTI_CHECK(group.sides.empty() || (group.comm == comm && group.stream == stream),
                "a group of calls on several communicators or streams");
    group.comm = comm;
    group.stream = stream;
    group.sides.push_back(side);
  }
  return ncclInProgress;
}

}  // namespace

// ---- Communicators ------------------------------------------------------------------------------

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclInProgress: return "in progress";
  }
  return "unknown";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static uint64_t count = 0;
  const Turn turn;
  if (!turn) return not_alone();
  const std::lock_guard lock(all);
  ++count;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &count, sizeof count);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  static std::map<std::string, std::shared_ptr<Meeting>> meetings;
  TUTTI_CHECK(config->blocking == 0, "a communicator that blocks");
  const Turn turn;
  if (!turn) return not_alone();
  const std::lock_guard lock(all);
  std::shared_ptr<Meeting>& meeting = meetings[std::string(id.internal, sizeof id.internal)];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>();
  // Kept: the work of streams names it.
  static std::deque<ncclComm> communicators;
  *comm = &communicators.emplace_back();
  (*comm)->meeting = meeting;
  (*comm)->rank = rank;
  (*comm)->size = size;
  (*comm)->device = on_host::current_device();
  meeting->devices.insert((*comm)->device);
  ++meeting->arrived;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const Turn turn;
  if (!turn) return not_alone();
  std::map<cudaStream_t, uint64_t> last;
  {
    const std::lock_guard lock(all);
    *state = state_of(*comm);
    if (*state == ncclInProgress && comm->is_finalizing) last = comm->last;
  }
  // Who asks waits for the end.
  const on_host::DeviceMemoryAccess access;
  for (const auto& [stream, place] : last) on_host::try_advance(stream, place);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Turn turn;
  if (!turn) return not_alone();
  const std::lock_guard lock(all);
  comm->is_finalizing = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Turn turn;
  if (!turn) return not_alone();
  const std::lock_guard lock(all);
  if (!comm->is_finalizing || comm->unfinished > 0) {
    return refused(ncclInvalidUsage, "it is not finalized");
  }
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Turn turn;
  if (!turn) return not_alone();
  const std::lock_guard lock(all);
  comm->is_aborted = true;
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
  const Turn turn;
  if (!turn) return not_alone();
  const std::lock_guard lock(all);
  give(calls.comm, calls.stream, calls.sides);
  return ncclInProgress;
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
  const Turn turn;
  return turn ? message(data, nullptr, count, type, peer, comm, stream) : not_alone();
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const Turn turn;
  return turn ? message(nullptr, data, count, type, peer, comm, stream) : not_alone();
}
