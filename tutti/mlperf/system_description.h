// The JSON file that describes the machines of a result.
//
// Required fields and the accepted values of `status`: mlcommons/logging, system_desc_checker. The
// values of status are tested from ruleset 4.1.0 on; 4.0 results were published with others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/mlperf/finding.h"
#include "tutti/mlperf/ruleset.h"

namespace tutti::mlperf {

struct SystemDescription {
  std::string submitter;
  std::string system_name;
  std::string division;
  std::string accelerator;   // accelerator_model_name
  std::string availability;  // status: "Available cloud"
  std::optional<int64_t> nodes;
  std::optional<int64_t> accelerators_per_node;

  std::optional<int64_t> accelerators() const;
};

struct SystemCheck {
  SystemDescription description;  // as far as it can be read
  std::vector<Finding> findings;
};

// The names of all required fields.
std::vector<std::string> system_fields();

// Throws only what reading the file throws.
SystemCheck check_system(FileSystem& files, const std::string& path, const Ruleset& ruleset);

}  // namespace tutti::mlperf
