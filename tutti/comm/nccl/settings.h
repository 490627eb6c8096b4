// The settings of NCCL and their origin: its environment variables, its configuration files,
// Tutti's own choices, or none, which leaves NCCL's default.
//
// NCCL reads the file that NCCL_CONF_FILE names, or ~/.nccl.conf, and /etc/nccl.conf, lines
// NAME=VALUE; the environment comes before either (NVIDIA, NCCL user guide, "Environment
// Variables"). Tutti chooses only what none of them says.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::comm {

struct NcclSetting {
  std::string name;    // "NCCL_ALGO"
  std::string value;   // as given; of a default what it means
  std::string origin;  // "environment", the path of a file, "tutti" or "NCCL's default"
  std::string why;     // of Tutti's choices

  bool operator==(const NcclSetting&) const = default;
};

using NcclVariables = std::vector<std::pair<std::string, std::string>>;

// The lines of such a file that set something.
NcclVariables parse_nccl_file(std::string_view text);

struct NcclSources {
  NcclVariables environment;  // those that begin with NCCL_
  // Path and lines, the one that counts first.
  std::vector<std::pair<std::string, NcclVariables>> files;
};
// Of this process.
NcclSources read_nccl_sources();

// Everything that is set, then what matters most of the rest. `hosts`: of the world.
std::vector<NcclSetting> nccl_settings(const NcclSources& sources, int64_t hosts);

// Puts Tutti's choices among them into the environment: before the first call of NCCL.
void apply_nccl_settings(const std::vector<NcclSetting>& settings);

std::string nccl_settings_text(const std::vector<NcclSetting>& settings);

}  // namespace tutti::comm
