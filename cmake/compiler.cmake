# Compiler, linker and sanitizer flags of every target.
include(CheckLinkerFlag)

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  message(FATAL_ERROR "Tutti is built with GCC 12 or Clang 14 and later, "
                      "not with ${CMAKE_CXX_COMPILER_ID}")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "GCC ${CMAKE_CXX_COMPILER_VERSION} is too old: 12 or later is needed")
endif()

# Flags of C++; CUDA's own are in cuda.cmake.
macro(tutti_cxx_options)
  foreach(option IN ITEMS ${ARGN})
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${option}>")
  endforeach()
endmacro()

tutti_cxx_options(-Wall -Wextra -Wpedantic -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees an overlapping memcpy in every inlined "literal" + std::string (GCC bug 105651).
  tutti_cxx_options(-Wno-restrict)
endif()
if(TUTTI_WERROR)
  tutti_cxx_options(-Werror)
endif()

# No code here reads errno of a math function or traps on floating-point exceptions. Contraction
# is what GCC does by default outside strict ISO mode. Nothing that reorders sums: results are
# bitwise reproducible.
tutti_cxx_options(-fno-math-errno -fno-trapping-math -ffp-contract=fast)
# Nothing replaces a function of ours at load time, so calls within a unit may be inlined.
tutti_cxx_options(-fno-semantic-interposition)

if(TUTTI_SANITIZE)
  add_compile_options(-fsanitize=${TUTTI_SANITIZE} -fno-sanitize-recover=all)
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${TUTTI_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
endif()

# Two optimisations of the build itself, used when the machine has them.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TUTTI_CCACHE ccache)
  if(TUTTI_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${TUTTI_CCACHE}")
  endif()
endif()
find_program(TUTTI_MOLD mold)
if(TUTTI_MOLD)
  check_linker_flag(CXX -fuse-ld=mold TUTTI_MOLD_WORKS)
  if(TUTTI_MOLD_WORKS)
    add_link_options(-fuse-ld=mold)
  endif()
endif()
