# With TUTTI_CUDA: the compiler, and the target tutti::cuda of what the backend links against. Only
# the headers and libraries are needed, no driver: NVML and the driver itself are looked up when the
# program runs.
if(NOT TUTTI_CUDA)
  return()
endif()
find_package(CUDAToolkit 13 QUIET)
if(NOT CUDAToolkit_FOUND)
  message(FATAL_ERROR "TUTTI_CUDA: the CUDA toolkit 13 was not found; put its nvcc into PATH or set "
                      "CUDAToolkit_ROOT")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "90a-real;90-virtual")
endif()
if(NOT CMAKE_CUDA_COMPILER_LAUNCHER AND CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc 13 speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)

# fmt 9 takes nvcc for a compiler without constexpr. -lineinfo lets profilers and compute-sanitizer
# name lines, and costs nothing at run time.
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1;-lineinfo;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra,-Wno-restrict,-fno-math-errno>")
if(TUTTI_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()

foreach(library IN ITEMS cublasLt cudnn)
  find_library(TUTTI_${library}_LIBRARY ${library} HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NOT TUTTI_${library}_LIBRARY)
    message(FATAL_ERROR "TUTTI_CUDA: lib${library} was not found beside the toolkit in "
                        "${CUDAToolkit_LIBRARY_DIR}")
  endif()
endforeach()
find_path(TUTTI_CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NOT TUTTI_CUDNN_INCLUDE_DIR)
  message(FATAL_ERROR "TUTTI_CUDA: cudnn.h was not found")
endif()
# cuDNN's fused attention is described through its header-only frontend, which PyPI distributes.
# Any folder with the headers will do.
find_path(TUTTI_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
  HINTS "${PROJECT_SOURCE_DIR}/build/headers/include" ${CUDAToolkit_INCLUDE_DIRS})
if(NOT TUTTI_CUDNN_FRONTEND_INCLUDE_DIR)
  message(FATAL_ERROR "TUTTI_CUDA: cudnn_frontend.h was not found; `tools/cuda_headers` fetches it, or "
                      "set TUTTI_CUDNN_FRONTEND_INCLUDE_DIR")
endif()

add_library(tutti_cuda INTERFACE)
add_library(tutti::cuda ALIAS tutti_cuda)
target_include_directories(tutti_cuda SYSTEM INTERFACE
  ${CUDAToolkit_INCLUDE_DIRS} "${TUTTI_CUDNN_INCLUDE_DIR}" "${TUTTI_CUDNN_FRONTEND_INCLUDE_DIR}")
target_link_libraries(tutti_cuda INTERFACE
  "${TUTTI_cublasLt_LIBRARY}" "${TUTTI_cudnn_LIBRARY}" CUDA::cudart ${CMAKE_DL_LIBS})
