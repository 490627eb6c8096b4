// Maps calls of a group to NCCL. Each is enqueued on a communicator and a stream when the function
// returns. Of several errors the first counts. Only for sources built with NCCL.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "tutti/base/dtype.h"
#include "tutti/comm/collectives/call.h"

namespace tutti::comm {

ncclDataType_t nccl_type(DType dtype);

// `size`: ranks of the communicator; `word`: an i32 of the device, for calls without data.
ncclResult_t nccl_collective(const Call& call, int size, void* word, ncclComm_t comm,
                             cudaStream_t stream);
// A send and a receive of as much, as one group.
ncclResult_t nccl_shift(const Call& send, const Call& receive, ncclComm_t comm,
                        cudaStream_t stream);
// On a communicator of two, of which the sender is rank 0.
ncclResult_t nccl_message(const Call& call, ncclComm_t comm, cudaStream_t stream);

}  // namespace tutti::comm
