#include "tutti/comm/nccl/calls.h"

#include "tutti/base/check.h"

namespace tutti::comm {
namespace {

// A group is closed whatever becomes of its calls.
class CallGroup {
 public:
  CallGroup() : result_(ncclGroupStart()) {}
  void add(ncclResult_t one) {
    if (result_ == ncclSuccess) result_ = one;
  }
  ncclResult_t end() {
    add(ncclGroupEnd());
    return result_;
  }

 private:
  ncclResult_t result_;
};

ncclResult_t all_to_all(const Call& call, int size, ncclComm_t comm, cudaStream_t stream) {
  const ncclDataType_t type = nccl_type(call.shape.dtype);
  const int64_t item = dtype_bytes(call.shape.dtype);
  const auto* send = static_cast<const char*>(call.send);
  auto* receive = static_cast<char*>(call.receive);
  CallGroup group;
  for (int other = 0; other < size; ++other) {
    const int64_t sends = call.send_counts[static_cast<size_t>(other)];
    const int64_t receives = call.receive_counts[static_cast<size_t>(other)];
    if (sends > 0) {
      group.add(ncclSend(send, static_cast<size_t>(sends), type, other, comm, stream));
    }
    if (receives > 0) {
      group.add(ncclRecv(receive, static_cast<size_t>(receives), type, other, comm, stream));
    }
    send += sends * item;
    receive += receives * item;
  }
  return group.end();
}

}  // namespace

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    default: TUTTI_CHECK(false, "collectives do not support {}", dtype_name(dtype));
  }
}

ncclResult_t nccl_collective(const Call& call, int size, void* word, ncclComm_t comm,
                             cudaStream_t stream) {
  const CallShape& shape = call.shape;
  const auto count = static_cast<size_t>(shape.count);
  const ncclDataType_t type = nccl_type(shape.dtype);
  const ncclRedOp_t reduce = shape.reduce == Reduce::sum ? ncclSum : ncclMax;
  switch (shape.kind) {
    case CallKind::all_reduce:
      return ncclAllReduce(call.send, call.receive, count, type, reduce, comm, stream);
    case CallKind::reduce_scatter:
      return ncclReduceScatter(call.send, call.receive, count, type, reduce, comm, stream);
    case CallKind::all_gather:
      return ncclAllGather(call.send, call.receive, count, type, comm, stream);
    case CallKind::broadcast:
      return ncclBroadcast(call.send, call.receive, count, type, shape.peer, comm, stream);
    case CallKind::barrier: return ncclAllReduce(word, word, 1, ncclInt32, ncclSum, comm, stream);
    case CallKind::all_to_all: return all_to_all(call, size, comm, stream);
    default: TUTTI_CHECK(false, "{} is not a collective", call_name(shape.kind));
  }
}

ncclResult_t nccl_shift(const Call& send, const Call& receive, ncclComm_t comm,
                        cudaStream_t stream) {
  const ncclDataType_t type = nccl_type(send.shape.dtype);
  const auto count = static_cast<size_t>(send.shape.count);
  if (count == 0) return ncclSuccess;
  CallGroup group;
  group.add(ncclSend(send.send, count, type, send.shape.peer, comm, stream));
  group.add(ncclRecv(receive.receive, count, type, receive.shape.peer, comm, stream));
  return group.end();
}

ncclResult_t nccl_message(const Call& call, ncclComm_t comm, cudaStream_t stream) {
  const ncclDataType_t type = nccl_type(call.shape.dtype);
  const auto count = static_cast<size_t>(call.shape.count);
  if (count == 0) return ncclSuccess;
  return call.shape.kind == CallKind::send ? ncclSend(call.send, count, type, 1, comm, stream)
                                           : ncclRecv(call.receive, count, type, 0, comm, stream);
}

}  // namespace tutti::comm
