# The functions a folder's CMakeLists.txt is written with. Sources are listed by name, never
# globbed; tools/check_layers fails when a source file is named nowhere. Paths are relative to the
# folder; code is included from the repository root (`#include "tutti/base/error.h"`).
#
#   tutti_library(<folder>
#     SOURCES <file.cpp>...
#     [HEADERS <file.h>...]           only for editors; the compiler finds headers itself
#     [LINK <target>...]              public: what links this folder gets them too
#     [OPTIMIZE <level>]              of release builds, for folders without hot loops; default 3
#     [NO_UNITY])                     compile each source on its own
#
#       Makes the static library tutti_<folder>, to be linked as tutti::<folder>.
#
#       Sources are compiled in units of TUTTI_UNITY_SOURCES files (unity build; TUTTI_UNITY=OFF
#       compiles each on its own). Names in anonymous namespaces must therefore differ within a
#       folder. A source with compile options of its own, or with SKIP_UNITY_BUILD_INCLUSION, is never
#       part of a unit; set such properties before the call.
#
#   tutti_test(<folder>_test
#     SOURCES <file_test.cpp>...
#     LINK <target>...                GoogleTest and its main() are added
#     [ARGS <argument>...]
#     [TIMEOUT <seconds>]             default 300, of an idle machine: a busy one gets three times
#                                     that, a sanitizer build five times
#     [PROCESSORS <n>]                default 1; write 2 or more when it runs OpenMP kernels
#     [SERIAL]                        runs alone: for tests that measure time
#     [LABELS <label>...]             added to "unit" and the folder's name
#     [ENVIRONMENT <NAME=value>...]
#     [FULL <pattern>...]             cases (GoogleTest patterns) too long for the quick tier
#     [ELSEWHERE <pattern>...]        cases that run in an entry of their own, not in this one
#     [NO_MAIN]                       the sources bring their own main()
#     [NO_UNITY])                     compile each source on its own
#
#       Makes one GoogleTest program, <build>/bin/<folder>_test, and one CTest entry of that name,
#       labelled "quick": `make test` runs it. Cases of FULL run in a second entry, <name>_full, which
#       `make test-all` adds; FULL "*" leaves none for the quick tier. docs/testing.md has the tiers.
#       "tutti_test_paths.h" defines TUTTI_SOURCE_DIR (repository root) and TUTTI_BINARY (path of the
#       tutti program; link order does not build it, add_dependencies(<test> tutti) does).
#
#   tutti_device_test(<folder>_test <device>)
#
#       Runs that program once more with TUTTI_TEST_DEVICE=<device>, as <folder>_test_<device>; exit
#       status 77 means skipped, because the machine has no such device.
#
#   tutti_python_test(<name>
#     SCRIPT <file.py>                run by the interpreter of .venv (tools/python_env)
#     [QUICK]                         part of the quick tier
#     [ARGS <argument>...] [TIMEOUT <seconds>] [PROCESSORS <n>] [SERIAL] [LABELS <label>...]
#     [ENVIRONMENT <NAME=value>...])
#
#       One CTest entry labelled "python". The script finds TUTTI_SOURCE_DIR and TUTTI_BINARY in
#       its environment; exit status 77 means skipped. Registered in builds without a sanitizer.
#
#   tutti_benchmark(<name> SOURCES <file.cpp>... LINK <target>...)
#
#       Makes <build>/bin/<name> with Google Benchmark and its main(). Not a test.
#
# The program itself is a plain add_executable(tutti ...) in tutti/cli/CMakeLists.txt that links
# the folders' libraries; the root puts it at <build>/tutti.

configure_file("${CMAKE_CURRENT_LIST_DIR}/tutti_test_paths.h.in"
  "${PROJECT_BINARY_DIR}/generated/tutti_test_paths.h" @ONLY)

set(TUTTI_UNITY_SOURCES 12)

# Replaces the sources in the list variable <list> by units that include up to TUTTI_UNITY_SOURCES of
# them each. A unit holds files of one subfolder only: files that some builds add (cuda/) then never
# share a unit, and its unnamed namespaces, with files they do not meet in the other builds.
# CMake's own UNITY_BUILD writes absolute paths into its units, which a compiler cache shared between
# checkouts cannot match; these include by the path from the repository root.
function(tutti_unity_sources name list)
  if(NOT TUTTI_UNITY)
    return()
  endif()
  set(alone)
  set(merged)
  foreach(source IN LISTS ${list})
    get_source_file_property(definitions "${source}" COMPILE_DEFINITIONS)
    get_source_file_property(options "${source}" COMPILE_OPTIONS)
    get_source_file_property(skipped "${source}" SKIP_UNITY_BUILD_INCLUSION)
    if(skipped OR definitions OR options OR IS_ABSOLUTE "${source}" OR NOT source MATCHES "\\.cpp$")
      list(APPEND alone "${source}")
    else()
      list(APPEND merged "${source}")
    endif()
  endforeach()
  file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}")
  set(units)
  set(text "")
  set(count 0)
  set(subfolder "")
  foreach(source IN LISTS merged ITEMS "")
    get_filename_component(next_subfolder "${source}" DIRECTORY)
    if(count EQUAL TUTTI_UNITY_SOURCES OR
       (count GREATER 0 AND (source STREQUAL "" OR NOT next_subfolder STREQUAL subfolder)))
      list(LENGTH units index)
      set(unit "${CMAKE_CURRENT_BINARY_DIR}/unity/${name}_${index}.cpp")
      file(CONFIGURE OUTPUT "${unit}" CONTENT "${text}" @ONLY)
      list(APPEND units "${unit}")
      set(text "")
      set(count 0)
    endif()
    set(subfolder "${next_subfolder}")
    string(APPEND text "#include \"${folder}/${source}\"\n")
    math(EXPR count "${count} + 1")
  endforeach()
  set(${list} ${units} ${alone} PARENT_SCOPE)
endfunction()

function(tutti_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_UNITY" "OPTIMIZE" "SOURCES;HEADERS;LINK")
  tutti_arguments_done(tutti_library)
  if(NOT arg_NO_UNITY)
    tutti_unity_sources(${folder} arg_SOURCES)
  endif()
  add_library(tutti_${folder} STATIC ${arg_SOURCES} ${arg_HEADERS})
  add_library(tutti::${folder} ALIAS tutti_${folder})
  target_include_directories(tutti_${folder} PUBLIC
    "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/generated")
  if(DEFINED arg_OPTIMIZE)
    target_compile_options(tutti_${folder} PRIVATE $<$<CONFIG:Release>:-O${arg_OPTIMIZE}>)
  endif()
  target_link_libraries(tutti_${folder} PUBLIC ${arg_LINK})
endfunction()

function(tutti_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;NO_MAIN;NO_UNITY" "TIMEOUT;PROCESSORS"
                        "SOURCES;LINK;ARGS;LABELS;ENVIRONMENT;FULL;ELSEWHERE")
  tutti_arguments_done(tutti_test)
  if(NOT TUTTI_TESTS)
    return()
  endif()
  if(NOT arg_NO_UNITY)
    tutti_unity_sources(${name} arg_SOURCES)
  endif()
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  # Test code need not be fast; it is a third of the build when it is optimised.
  target_compile_options(${name} PRIVATE -O1)
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest)
  if(NOT arg_NO_MAIN)
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  string(REGEX REPLACE "_test$" "" folder ${name})
  string(JOIN ":" full ${arg_FULL})
  string(JOIN ":" elsewhere ${arg_ELSEWHERE})
  if(full STREQUAL "*")
    tutti_test_entry(${name} ${name} "*" "${elsewhere}")
  else()
    tutti_test_entry(${name} ${name} "*" "${full}:${elsewhere}" quick)
    if(full)
      tutti_test_entry(${name} ${name}_full "${full}" "${elsewhere}")
    endif()
  endif()
endfunction()

function(tutti_device_test name device)
  add_test(NAME ${name}_${device} COMMAND $<TARGET_FILE:${name}>)
  set_tests_properties(${name}_${device} PROPERTIES
    ENVIRONMENT "TUTTI_TEST_DEVICE=${device};${TUTTI_TEST_ENVIRONMENT}"
    SKIP_RETURN_CODE 77
    RESOURCE_LOCK ${device}
    TIMEOUT 600
    LABELS "unit;${device}")
endfunction()

function(tutti_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;QUICK" "SCRIPT;TIMEOUT;PROCESSORS"
                        "ARGS;LABELS;ENVIRONMENT")
  tutti_arguments_done(tutti_python_test)
  if(NOT TUTTI_TESTS OR TUTTI_SANITIZE)
    return()
  endif()
  if(NOT TEST python_env)
    add_test(NAME python_env COMMAND "${PROJECT_SOURCE_DIR}/tools/python_env")
    set_tests_properties(python_env PROPERTIES FIXTURES_SETUP python_env LABELS "python;quick")
  endif()
  add_test(NAME ${name} COMMAND "${PROJECT_SOURCE_DIR}/.venv/bin/python3"
    "${CMAKE_CURRENT_SOURCE_DIR}/${arg_SCRIPT}" ${arg_ARGS})
  set(entry_ENVIRONMENT ${arg_ENVIRONMENT}
    "TUTTI_SOURCE_DIR=${PROJECT_SOURCE_DIR}" "TUTTI_BINARY=${PROJECT_BINARY_DIR}/tutti"
    "PYTHONDONTWRITEBYTECODE=1" "OMP_WAIT_POLICY=passive")
  if(arg_QUICK)
    list(APPEND arg_LABELS quick)
  endif()
  tutti_test_properties(${name} python)
  set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED python_env SKIP_RETURN_CODE 77)
endfunction()

function(tutti_benchmark name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  tutti_arguments_done(tutti_benchmark)
  add_executable(${name} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  target_link_libraries(${name} PRIVATE ${arg_LINK} benchmark::benchmark
                        benchmark::benchmark_main)
endfunction()

# What the functions above share; all read their caller's parsed arguments.

macro(tutti_arguments_done function)
  if(arg_UNPARSED_ARGUMENTS OR arg_KEYWORDS_MISSING_VALUES)
    message(FATAL_ERROR "${function}: unknown argument '${arg_UNPARSED_ARGUMENTS}' "
                        "or keyword without value '${arg_KEYWORDS_MISSING_VALUES}'")
  endif()
endmacro()

# The CTest entry <entry>: cases of <program> that match <wanted> and not <unwanted>.
macro(tutti_test_entry program entry wanted unwanted)
  add_test(NAME ${entry} COMMAND ${TUTTI_TEST_LAUNCHER} $<TARGET_FILE:${program}> ${arg_ARGS})
  set(entry_ENVIRONMENT ${arg_ENVIRONMENT})
  list(APPEND entry_ENVIRONMENT
    "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test-results/${entry}.xml"
    "GTEST_FILTER=${wanted}-${unwanted}" ${TUTTI_TEST_ENVIRONMENT})
  tutti_test_properties(${entry} unit ${folder} ${ARGN})
endmacro()

macro(tutti_test_properties name)
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  # A machine that others use too gets on more slowly; what hangs, hangs for ever.
  set(patience 3)
  if(TUTTI_SANITIZE)
    set(patience 5)
  endif()
  math(EXPR timeout "${arg_TIMEOUT} * ${patience}")
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  set(labels ${arg_LABELS} ${ARGN})
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${timeout}
    PROCESSORS ${arg_PROCESSORS}
    LABELS "${labels}"
    ENVIRONMENT "${entry_ENVIRONMENT}")
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endmacro()

# How tests start. Passive waiting keeps concurrent tests from spinning on each other's cores.
set(TUTTI_TEST_LAUNCHER "")
set(TUTTI_TEST_ENVIRONMENT "OMP_WAIT_POLICY=passive")
if(TUTTI_SANITIZE MATCHES "thread")
  # libdnnl brings its own, uninstrumented OpenMP: one thread there, our own threads elsewhere.
  list(APPEND TUTTI_TEST_ENVIRONMENT
    "OMP_NUM_THREADS=1"
    "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp")
  # GCC 12's thread sanitizer cannot place its shadow when the kernel randomises many bits.
  execute_process(COMMAND setarch -R true RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(NOT failed)
    set(TUTTI_TEST_LAUNCHER setarch -R)
  endif()
elseif(TUTTI_SANITIZE)
  list(APPEND TUTTI_TEST_ENVIRONMENT
    "ASAN_OPTIONS=strict_string_checks=1:check_initialization_order=1"
    "UBSAN_OPTIONS=print_stacktrace=1")
endif()
