// CPU quota of this process's control groups (versions 1 and 2), and the time for which they
// throttled its threads.
#pragma once

#include <string>

namespace tutti::node {

struct CgroupCpu {
  double quota_cores = 0;  // the least of the group and those above it; 0: no limit
  std::string limited_by;  // the folder of that group
  // Of all cores together since the groups exist: what threads that wanted to run were held back.
  double throttled_seconds = 0;
  bool known = false;  // false: no control group of this process could be read
};

// `root` holds proc/self/cgroup and proc/self/mountinfo, and the paths named there.
CgroupCpu read_cgroup_cpu(const std::string& root = "");

}  // namespace tutti::node
