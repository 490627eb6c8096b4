// NCCL on the host (comm/testing/on_host/nccl.cpp): what of its interface the groups of ranks use,
// under its own names. What each function does the NCCL user guide says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 27, 0)

enum ncclResult_t {
  ncclSuccess = 0,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
};
enum ncclDataType_t { ncclInt32 = 2, ncclInt64 = 4, ncclFloat32 = 7, ncclBfloat16 = 9 };
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
using ncclComm_t = struct ncclComm*;
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking = 1;
  int maxCTAs = 0;
  const char* commName = nullptr;
};
#define NCCL_CONFIG_INITIALIZER \
  {}

ncclResult_t ncclGetVersion(int* version);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduce, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t receive_count,
                               ncclDataType_t type, ncclRedOp_t reduce, ncclComm_t comm,
                               cudaStream_t stream);
ncclResult_t ncclAllGather(const void* send, void* receive, size_t send_count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
