# Writes <build>/generated/tutti_version.h. The version is `git describe` where a tag v* exists,
# else the project version plus the commit, else the project version alone.
set(TUTTI_VERSION "${PROJECT_VERSION}")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/.git")
  execute_process(
    COMMAND "${GIT_EXECUTABLE}" describe --tags --match "v*" --dirty
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    OUTPUT_VARIABLE described RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    string(REGEX REPLACE "^v" "" TUTTI_VERSION "${described}")
  else()
    execute_process(
      COMMAND "${GIT_EXECUTABLE}" describe --always --exclude "*" --dirty
      WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
      OUTPUT_VARIABLE described RESULT_VARIABLE failed
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(NOT failed)
      string(APPEND TUTTI_VERSION "+g${described}")
    endif()
  endif()
endif()
configure_file(
  "${CMAKE_CURRENT_LIST_DIR}/tutti_version.h.in"
  "${CMAKE_BINARY_DIR}/generated/tutti_version.h" @ONLY)
message(STATUS "Tutti ${TUTTI_VERSION}")
