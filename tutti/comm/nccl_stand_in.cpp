#include "tutti/comm/nccl_stand_in.h"

#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

std::mutex all;  // of everything here
std::condition_variable changed;

struct Stream {
  std::deque<std::function<void(std::unique_lock<std::mutex>&)>> work;
  bool is_working = false, ends = false;
  std::thread thread;
};

struct Event {
  uint64_t recorded = 0, done = 0;
};

struct Posting {
  const void* data = nullptr;
  size_t bytes = 0;
  bool is_taken = false;
};

// What the communicators of one id share.
struct Meeting {
  int arrived = 0;
  std::set<std::pair<int, int>> called;  // who has made a call with whom
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posting>>> messages;  // (from, to)
  std::map<uint64_t, std::vector<const float*>> sums;  // by number: those that have come
  std::map<uint64_t, int> summed;
};

}  // namespace

struct CUstream_st : Stream {};
struct CUevent_st : Event {};
struct ncclComm {
  std::shared_ptr<Meeting> meeting;
  int rank = 0, size = 0;
  bool aborted = false;
  uint64_t sums = 0;
  std::set<int> peers;  // it has made a call with
};

namespace {

std::map<std::string, std::shared_ptr<Meeting>>& meetings() {
  static std::map<std::string, std::shared_ptr<Meeting>> by_id;
  return by_id;
}

void add_work(cudaStream_t stream, std::function<void(std::unique_lock<std::mutex>&)> work) {
  const std::lock_guard lock(all);
  stream->work.push_back(std::move(work));
  changed.notify_all();
}

void work(Stream& stream) {
  std::unique_lock lock(all);
  for (;;) {
    changed.wait(lock, [&] { return stream.ends || !stream.work.empty(); });
    if (stream.work.empty()) return;
    const auto next = std::move(stream.work.front());
    stream.work.pop_front();
    stream.is_working = true;
    next(lock);
    stream.is_working = false;
    changed.notify_all();
  }
}

size_t bytes_of(size_t count, ncclDataType_t type) {
  return count * (type == ncclInt64 ? 8 : type == ncclBfloat16 ? 2 : 4);
}

std::vector<ncclComm_t>& kept_communicators() {
  static std::vector<ncclComm_t> kept;  // streams may still look at them
  return kept;
}

}  // namespace

namespace tutti::comm {

void stand_in_synchronize(cudaStream_t stream) {
  std::unique_lock lock(all);
  changed.wait(lock, [&] { return stream->work.empty() && !stream->is_working; });
}

}  // namespace tutti::comm

extern "C" {

cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = ::operator new(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  ::operator delete(data);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* data, int byte, size_t bytes) {
  std::memset(data, byte, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  (*stream)->thread = std::thread([made = *stream] { work(*made); });
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const std::lock_guard lock(all);
    stream->ends = true;
    changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }  // streams may still look at it
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(all);
    number = ++event->recorded;
  }
  add_work(stream, [event, number](auto&) { event->done = std::max(event->done, number); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(all);
  return event->done >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(all);
    number = event->recorded;
  }
  add_work(stream, [event, number](auto& lock) {
    changed.wait(lock, [&] { return event->done >= number; });
  });
  return cudaSuccess;
}

const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return "none"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static uint64_t count = 0;
  const std::lock_guard lock(all);
  ++count;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &count, sizeof count);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t*) {
  const std::lock_guard lock(all);
  *comm = new ncclComm;
  std::shared_ptr<Meeting>& meeting = meetings()[std::string(id.internal, sizeof id.internal)];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>();
  (*comm)->meeting = meeting;
  (*comm)->rank = rank;
  (*comm)->size = size;
  ++meeting->arrived;
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(all);
  *state = comm->meeting->arrived < comm->size ? ncclInProgress : ncclSuccess;
  for (const int peer : comm->peers) {
    if (comm->meeting->called.count({peer, comm->rank}) == 0) *state = ncclInProgress;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard lock(all);
  comm->aborted = true;
  kept_communicators().push_back(comm);
  changed.notify_all();
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return ncclCommAbort(comm); }

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  {
    const std::lock_guard lock(all);
    comm->peers.insert(peer);
    comm->meeting->called.insert({comm->rank, peer});
  }
  add_work(stream, [=](auto& lock) {
    auto mine = std::make_shared<Posting>(Posting{data, bytes_of(count, type)});
    comm->meeting->messages[{comm->rank, peer}].push_back(mine);
    changed.notify_all();
    changed.wait(lock, [&] { return mine->is_taken || comm->aborted; });
  });
  return ncclInProgress;
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  {
    const std::lock_guard lock(all);
    comm->peers.insert(peer);
    comm->meeting->called.insert({comm->rank, peer});
  }
  add_work(stream, [=](auto& lock) {
    auto& queue = comm->meeting->messages[{peer, comm->rank}];
    changed.wait(lock, [&] { return !queue.empty() || comm->aborted; });
    if (queue.empty()) return;
    std::memcpy(data, queue.front()->data, bytes_of(count, type));
    queue.front()->is_taken = true;
    queue.pop_front();
    changed.notify_all();
  });
  return ncclInProgress;
}

// Of f32.
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
  const uint64_t number = comm->sums++;
  add_work(stream, [=](auto& lock) {
    auto& sends = comm->meeting->sums[number];
    const auto size = static_cast<size_t>(comm->size);
    sends.push_back(static_cast<const float*>(send));
    changed.notify_all();
    changed.wait(lock, [&] { return sends.size() == size || comm->aborted; });
    if (sends.size() < size) return;
    std::vector<float> sum(count);
    for (const float* one : sends) {
      for (size_t i = 0; i < count; ++i) sum[i] += one[i];
    }
    int& done = comm->meeting->summed[number];
    ++done;
    changed.notify_all();
    changed.wait(lock, [&] { return done == comm->size || comm->aborted; });
    std::memcpy(receive, sum.data(), count * sizeof(float));
  });
  return ncclSuccess;
}

}  // extern "C"
