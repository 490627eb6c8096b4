// Health reports that `tutti check --out FOLDER/health/NODE.json` wrote.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::control {

struct NodeReport {
  std::string node;         // name of the file
  bool healthy = false;     // nothing was found wrong with it
  bool busy = false;        // others used it, so that its speed could not be judged
  double wall_seconds = 0;  // when it was checked
  std::string kind;         // what it was held against
  struct Failure {
    std::string check;
    std::string detail;
  };
  std::vector<Failure> failures;
  std::string problem;  // why the file says nothing; the rest is then as it is here
};

// By name; none where the folder is not there. A file that cannot be read is a report of its
// problem.
std::vector<NodeReport> read_node_reports(FileSystem& files, const std::string& folder);

}  // namespace tutti::control
