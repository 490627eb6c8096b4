// Element types of CUDA's libraries that the CUDA backend uses, with the original numbers
// (on_host/grid.h explains why).
#pragma once

enum cudaDataType_t {
  CUDA_R_32F = 0,
  CUDA_R_16BF = 14,
  CUDA_R_8F_E4M3 = 28,
  CUDA_R_8F_E5M2 = 29,
};
