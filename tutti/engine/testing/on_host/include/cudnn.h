// cuDNN on the host (on_host/grid.h explains why): the functions that the CUDA backend calls
// directly. Attention itself goes through the frontend, cudnn_frontend.h.
#pragma once

#include <cuda_runtime_api.h>

enum cudnnStatus_t {
  CUDNN_STATUS_SUCCESS = 0,
  CUDNN_STATUS_BAD_PARAM = 2000,
};
const char* cudnnGetErrorString(cudnnStatus_t status);

using cudnnHandle_t = struct cudnnContext*;
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
