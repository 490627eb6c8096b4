// Identity of the running program: the bits of a result depend on the executable and on the
// libraries loaded at its start.
#pragma once

#include <string>

namespace tutti {

struct Binary {
  std::string executable_hash;  // XXH3 of the executable's file; empty where it cannot be read
  // Shared libraries that the process was started with, each with the first eight digits of its
  // build id (the linker's hash of the contents; "?" where there is none):
  // "libc.so.6 1a2b3c4d, libdnnl..."
  std::string libraries;
};

Binary describe_binary();

}  // namespace tutti
