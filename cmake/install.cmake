# cmake --install <build>, by component:
#   program      the program, the recipes it can name, the catalog, completion and manual pages
#   development  libtutti.so, its header, and the files that find_package(Tutti) reads
#   tests        test programs for bundles; only when named
# and the settings of CPack for `make deb`, which packs the component "program".
include(GNUInstallDirs)
if(TARGET tutti)
  set_target_properties(tutti PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
  install(TARGETS tutti RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)

  # The program writes its completions and manual pages at installation.
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    function(written_by_tutti output)
      if(output)
        get_filename_component(folder \"\${output}\" DIRECTORY)
        file(MAKE_DIRECTORY \"\${folder}\")
        set(redirect OUTPUT_FILE \"\${output}\")
      endif()
      execute_process(COMMAND \"$<TARGET_FILE:tutti>\" \${ARGN} \${redirect} RESULT_VARIABLE failed)
      if(failed)
        message(FATAL_ERROR \"tutti \${ARGN}: exit code \${failed}\")
      endif()
    endfunction()
    message(STATUS \"Writing: manual pages and shell completion below \${share}\")
    written_by_tutti(\"\" man \"\${share}/man/man1\")
    foreach(entry IN ITEMS \"bash bash-completion/completions/tutti\"
                           \"zsh zsh/vendor-completions/_tutti\"
                           \"fish fish/vendor_completions.d/tutti.fish\")
      string(REPLACE \" \" \";\" entry \"\${entry}\")
      list(GET entry 0 shell)
      list(GET entry 1 file)
      written_by_tutti(\"\${share}/\${file}\" completion \${shell})
    endforeach()"
    COMPONENT program)
endif()
install(DIRECTORY recipes catalog DESTINATION "${CMAKE_INSTALL_DATADIR}/tutti"
  COMPONENT program OPTIONAL)
install(FILES LICENSE CHANGELOG.md cmake/copyright
  DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT program)

foreach(test IN ITEMS engine_test train_test comm_test parity_dump)
  if(TARGET ${test})
    install(TARGETS ${test} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
      COMPONENT tests EXCLUDE_FROM_ALL OPTIONAL)
  endif()
endforeach()

if(TARGET tutti_shared)
  include(CMakePackageConfigHelpers)
  set(TUTTI_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Tutti")
  configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/TuttiConfig.cmake.in"
    "${CMAKE_BINARY_DIR}/generated/TuttiConfig.cmake"
    INSTALL_DESTINATION "${TUTTI_CMAKE_DIR}"
    NO_CHECK_REQUIRED_COMPONENTS_MACRO)
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/generated/TuttiConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(TARGETS tutti_shared LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
  install(FILES tutti/api/tutti.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/tutti"
    COMPONENT development)
  install(FILES
    "${CMAKE_BINARY_DIR}/generated/TuttiConfig.cmake"
    "${CMAKE_BINARY_DIR}/generated/TuttiConfigVersion.cmake"
    DESTINATION "${TUTTI_CMAKE_DIR}" COMPONENT development)
endif()

include(package)
