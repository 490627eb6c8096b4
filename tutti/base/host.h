// The machine in the words of a data sheet, as far as the system reports it; what it does not
// report is empty or 0. For reports: nothing is computed from it.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

struct HostSheet {
  std::string processor;  // model name
  int sockets = 0;
  int cores_per_socket = 0;
  int threads = 0;        // hardware threads of the machine
  std::string frequency;  // "2596 MHz"
  std::string caches;     // of one processor: "L1d 32K, L1i 32K, L2 512K, L3 32768K"
  int numa_nodes = 0;
  std::string memory;        // "23.5 GiB"
  std::string storage_type;  // of the disk that holds `folder`: "SSD", "rotating disk"
  std::string storage;       // size of its file system
  std::string network;       // "eth0 10000 Mb/s, ..."
  std::string operating_system;
  std::string kernel;
};

HostSheet describe_host(const std::string& folder);

}  // namespace tutti
