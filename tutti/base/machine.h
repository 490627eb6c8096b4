// Properties of this machine and process, as the system reports them.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

struct Machine {
  std::string cpu;      // model name, "unknown" where the system does not say
  int cores = 1;        // that this process may use
  double clock_hz = 0;  // nominal; 0 when unknown
  int64_t memory_bytes = 0;
  std::string host;
};

Machine describe_machine();

std::string boot_id();  // of this boot of the machine; empty where the system does not say

// Whether a process is stopped (SIGSTOP, SIGTSTP) and not continued since: it certainly does not
// run, while one that is starved may. False for one that is gone or that a debugger holds.
bool is_process_stopped(int process);

int64_t resident_bytes();       // of this process, now; 0 where the system does not say
int64_t peak_resident_bytes();  // of this process, since it started

}  // namespace tutti
