// NCCL and the CUDA runtime in memory of the host, so far as the groups of ranks use them: defined
// in nccl_stand_in.cpp under their own names, which a program that links it uses in their place.
//
// A stream is a thread that does what it is given in order. As in NCCL (user guide, "Point-to-point
// communication") a message keeps its stream until its peer has taken part, the first call between
// two ranks of a communicator is under way (ncclInProgress) until the other makes its own, and
// calls of one group end together.
#pragma once

#include <cuda_runtime_api.h>

namespace tutti::comm {

// Returns when the stream has done everything.
void stand_in_synchronize(cudaStream_t stream);

}  // namespace tutti::comm
