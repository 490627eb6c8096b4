// Compliance of one log with a ruleset.
//
// The rules are those of ruleset.h. The official checker executes Python from YAML files, common
// rules first, then those of the division and the benchmark, each of which forgets earlier messages
// about the keys it names; here that is one merged table. Repeated keys that must occur once are
// only a warning when all values agree, as there; except init_stop, run_start and run_stop, whose
// repetition would leave the time of the run open.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/mlperf/finding.h"
#include "tutti/mlperf/log.h"
#include "tutti/mlperf/ruleset.h"
#include "tutti/mlperf/run.h"

namespace tutti::mlperf {

struct LogCheck {
  std::vector<Finding> findings;
  Run run;
  bool compliant = false;
};

LogCheck check_log(FileSystem& files, const std::string& path, const Ruleset& ruleset);

// The same for a log in memory; `name` stands for its path.
LogCheck check_log_text(std::string_view text, const std::string& name, const Ruleset& ruleset);

}  // namespace tutti::mlperf
