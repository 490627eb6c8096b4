// Which program this process runs, so that two runs can be told apart by it: the bits of a result
// depend on the executable and on the libraries that it was started with.
#pragma once

#include <string>

namespace tutti {

struct Binary {
  std::string executable_hash;  // XXH3 of the executable's file; empty where it cannot be read
  // Shared libraries of the process by name, with the first eight digits of their build ids (the
  // linker's hash of the contents; "?" where there is none): "libc.so.6 1a2b3c4d, libdnnl..."
  std::string libraries;
};

Binary describe_binary();

}  // namespace tutti
