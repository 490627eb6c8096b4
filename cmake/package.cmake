# CPack: `make deb` (`cpack -G DEB` in the build folder). The package holds the component "program".
# It depends on the packages that the program's libraries belong to (dpkg-shlibdeps), so it is for
# the release of Debian that it was built on.
set(CPACK_PACKAGE_NAME "tutti")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_CONTACT "Tutti developers <developers@tutti.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains large language models to a target loss")
set(CPACK_PACKAGE_DESCRIPTION
  "One program that prepares text, trains GPT and Llama models until a validation
loss is reached, plans and measures training, and leaves behind runs that can
be resumed and inspected.")
set(CPACK_PACKAGING_INSTALL_PREFIX "/usr")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};tutti;program;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
include(CPack)
