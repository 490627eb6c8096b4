# Every library Tutti links against, found on the system; nothing is downloaded or vendored.
# Names to write after LINK:
#
#   DNNL::dnnl  fmt::fmt  yaml-cpp  nlohmann_json::nlohmann_json  CLI11::CLI11  ZLIB::ZLIB
#   OpenSSL::Crypto  tutti::gloo  tutti::hwloc
#   PkgConfig::hwy  PkgConfig::xxhash  PkgConfig::zstd  PkgConfig::icu  PkgConfig::pcre2
#   PkgConfig::sentencepiece  PkgConfig::sqlite3  Threads::Threads
#   PkgConfig::sodium  PkgConfig::curl  PkgConfig::pugixml
#   PkgConfig::prometheus  (the core library: a registry and its text)
#   tutti::beast  (Boost.Beast and Boost.Asio, headers only)
#   tutti::openmp  OpenMP, or with TUTTI_OPENMP=OFF nothing (pragmas are then ignored and _OPENMP
#                  is undefined, so omp_*() calls belong behind `#ifdef _OPENMP`)
#   GTest::gtest, benchmark::benchmark: linked by tutti_test and tutti_benchmark

macro(tutti_missing name package)
  message(FATAL_ERROR "${name} was not found. On Debian: apt-get install ${package} "
                      "(or `make deps` for everything)")
endmacro()

macro(tutti_find_package name package)
  find_package(${name} QUIET)
  if(NOT ${name}_FOUND)
    tutti_missing(${name} ${package})
  endif()
endmacro()

# Modules that others require, and that some distributions leave out of their dependencies.
set(TUTTI_PACKAGE_OF_protobuf-lite libprotobuf-dev)

# Stops. A module that is there may still require one that is not, which pkg-config names.
function(tutti_missing_module module package)
  execute_process(COMMAND "${PKG_CONFIG_EXECUTABLE}" --exists --print-errors ${module}
                  ERROR_VARIABLE error)
  if(error MATCHES "Package '([^']+)', required by '([^']+)'" AND NOT CMAKE_MATCH_1 STREQUAL module)
    set(required ${CMAKE_MATCH_1})
    set(package "the package that holds ${required}.pc")
    if(DEFINED TUTTI_PACKAGE_OF_${required})
      set(package ${TUTTI_PACKAGE_OF_${required}})
    endif()
    tutti_missing("${required}, which ${CMAKE_MATCH_2} requires," "${package}")
  endif()
  tutti_missing(${module} ${package})
endfunction()

macro(tutti_pkg_config name module package)
  pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
  if(NOT ${name}_FOUND)
    tutti_missing_module(${module} ${package})
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

tutti_find_package(PkgConfig pkg-config)
tutti_find_package(fmt libfmt-dev)
tutti_find_package(nlohmann_json nlohmann-json3-dev)
tutti_find_package(yaml-cpp libyaml-cpp-dev)
tutti_find_package(CLI11 libcli11-dev)
tutti_find_package(ZLIB zlib1g-dev)
tutti_find_package(OpenSSL libssl-dev)
tutti_pkg_config(curl libcurl libcurl4-openssl-dev)
tutti_pkg_config(pugixml pugixml libpugixml-dev)
tutti_pkg_config(xxhash libxxhash libxxhash-dev)
tutti_pkg_config(zstd libzstd libzstd-dev)
tutti_pkg_config(icu icu-uc libicu-dev)
tutti_pkg_config(pcre2 libpcre2-8 libpcre2-dev)
tutti_pkg_config(sentencepiece sentencepiece libsentencepiece-dev)
tutti_pkg_config(sqlite3 sqlite3 libsqlite3-dev)
tutti_pkg_config(sodium libsodium libsodium-dev)
tutti_pkg_config(hwy libhwy libhwy-dev)
tutti_pkg_config(prometheus prometheus-cpp-core prometheus-cpp-dev)

# oneDNN by header and library: its own CMake package would also ask for the OpenCL headers,
# which nothing here uses.
find_path(TUTTI_DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(TUTTI_DNNL_LIBRARY dnnl)
if(NOT TUTTI_DNNL_INCLUDE_DIR OR NOT TUTTI_DNNL_LIBRARY)
  tutti_missing(oneDNN libdnnl-dev)
endif()
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES
  IMPORTED_LOCATION "${TUTTI_DNNL_LIBRARY}"
  INTERFACE_INCLUDE_DIRECTORIES "${TUTTI_DNNL_INCLUDE_DIR}")

# Gloo by header and library, too: its CMake package names build directories of its own.
find_path(TUTTI_GLOO_INCLUDE_DIR gloo/context.h)
find_library(TUTTI_GLOO_LIBRARY gloo)
if(NOT TUTTI_GLOO_INCLUDE_DIR OR NOT TUTTI_GLOO_LIBRARY)
  tutti_missing(gloo libgloo-dev)
endif()
add_library(tutti_gloo INTERFACE)
add_library(tutti::gloo ALIAS tutti_gloo)
target_include_directories(tutti_gloo SYSTEM INTERFACE "${TUTTI_GLOO_INCLUDE_DIR}")
target_link_libraries(tutti_gloo INTERFACE "${TUTTI_GLOO_LIBRARY}")

find_path(TUTTI_HWLOC_INCLUDE_DIR hwloc.h)
find_library(TUTTI_HWLOC_LIBRARY hwloc)
if(NOT TUTTI_HWLOC_INCLUDE_DIR OR NOT TUTTI_HWLOC_LIBRARY)
  tutti_missing(hwloc libhwloc-dev)
endif()
add_library(tutti_hwloc INTERFACE)
add_library(tutti::hwloc ALIAS tutti_hwloc)
target_include_directories(tutti_hwloc SYSTEM INTERFACE "${TUTTI_HWLOC_INCLUDE_DIR}")
target_link_libraries(tutti_hwloc INTERFACE "${TUTTI_HWLOC_LIBRARY}")

# Beast by its header: Boost's CMake package would not look for a library without a binary.
find_path(TUTTI_BEAST_INCLUDE_DIR boost/beast/http.hpp)
if(NOT TUTTI_BEAST_INCLUDE_DIR)
  tutti_missing(Boost.Beast libboost-dev)
endif()
add_library(tutti_beast INTERFACE)
add_library(tutti::beast ALIAS tutti_beast)
target_include_directories(tutti_beast SYSTEM INTERFACE "${TUTTI_BEAST_INCLUDE_DIR}")
target_link_libraries(tutti_beast INTERFACE Threads::Threads)
# Coroutines are not used, and each compiler has its own view of those of old versions of Asio.
target_compile_definitions(tutti_beast INTERFACE BOOST_ASIO_DISABLE_CO_AWAIT)
if(TUTTI_SANITIZE MATCHES "thread")
  # The sanitizer does not know fences; the queues between threads have mutexes.
  target_compile_definitions(tutti_beast INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()

# NCCL with the CUDA runtime, where both are: otherwise tutti_nccl stays undefined.
option(TUTTI_NCCL "Use NCCL where the CUDA toolkit and NCCL are found" ON)
if(TUTTI_NCCL AND NOT TUTTI_SANITIZE)
  find_package(CUDAToolkit QUIET)
  find_path(TUTTI_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(TUTTI_NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(CUDAToolkit_FOUND AND TUTTI_NCCL_INCLUDE_DIR AND TUTTI_NCCL_LIBRARY)
    add_library(tutti_nccl INTERFACE)
    add_library(tutti::nccl ALIAS tutti_nccl)
    target_include_directories(tutti_nccl SYSTEM INTERFACE "${TUTTI_NCCL_INCLUDE_DIR}")
    target_link_libraries(tutti_nccl INTERFACE "${TUTTI_NCCL_LIBRARY}" CUDA::cudart)
  endif()
endif()

add_library(tutti_openmp INTERFACE)
add_library(tutti::openmp ALIAS tutti_openmp)
if(TUTTI_OPENMP)
  tutti_find_package(OpenMP build-essential)
  target_link_libraries(tutti_openmp INTERFACE OpenMP::OpenMP_CXX)
else()
  target_compile_options(tutti_openmp INTERFACE -Wno-unknown-pragmas)
endif()

if(TUTTI_TESTS)
  tutti_find_package(GTest libgtest-dev)
  find_package(Boost QUIET CONFIG COMPONENTS context)
  if(NOT TARGET Boost::context)
    tutti_missing(Boost.Context libboost-context-dev)
  endif()
endif()
if(TUTTI_BENCHMARKS AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/benchmarks/CMakeLists.txt")
  tutti_find_package(benchmark libbenchmark-dev)
endif()
