#include "tutti/comm/nccl/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>

#include "tutti/base/text.h"

namespace tutti::comm {
namespace {

// The defaults of NCCL.
constexpr std::array<std::pair<const char*, const char*>, 10> kDefaults = {{
    {"NCCL_ALGO", "chosen per call"},
    {"NCCL_PROTO", "chosen per call"},
    {"NCCL_NVLS_ENABLE", "NVLink SHARP where the GPUs have it"},
    {"NCCL_COLLNET_ENABLE", "0: no network SHARP"},
    {"NCCL_P2P_LEVEL", "chosen by distance"},
    {"NCCL_NET", "InfiniBand or RoCE where there is any, else sockets"},
    {"NCCL_IB_HCA", "all, the nearest first"},
    {"NCCL_SOCKET_IFNAME", "all but lo and docker"},
    {"NCCL_NET_GDR_LEVEL", "chosen by distance"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "0: groups are not ordered"},
}};

std::vector<NcclSetting> choices(int64_t hosts) {
  std::vector<NcclSetting> out = {
      {"NCCL_LAUNCH_ORDER_IMPLICIT", "1", "tutti",
       "groups along several axes are at work at once, in one order on every rank"}};
  if (hosts > 1) {
    out.push_back({"NCCL_COLLNET_ENABLE", "1", "tutti", "network SHARP where the fabric has it"});
  }
  return out;
}

const std::string* find(const NcclVariables& variables, const std::string& name) {
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& one) { return one.first == name; });
  return found == variables.end() ? nullptr : &found->second;
}

std::optional<NcclVariables> read_file_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return parse_nccl_file(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace

NcclVariables parse_nccl_file(std::string_view text) {
  NcclVariables out;
  for (const std::string_view line : split(text, '\n')) {
    const size_t equals = line.find('=');
    if (starts_with(std::string(line), "#") || equals == std::string_view::npos) continue;
    const std::string name(line.substr(0, equals));
    if (find(out, name) == nullptr) out.emplace_back(name, line.substr(equals + 1));
  }
  return out;
}

NcclSources read_nccl_sources() {
  NcclSources out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (!starts_with(text, "NCCL_") || equals == std::string::npos) continue;
    out.environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  std::sort(out.environment.begin(), out.environment.end());
  const std::string* named = find(out.environment, "NCCL_CONF_FILE");
  const char* home = std::getenv("HOME");
  const std::string own =
      named != nullptr ? *named : std::string(home == nullptr ? "" : home) + "/.nccl.conf";
  for (const std::string& path : {own, std::string("/etc/nccl.conf")}) {
    if (const auto variables = read_file_of(path)) out.files.emplace_back(path, *variables);
  }
  return out;
}

std::vector<NcclSetting> nccl_settings(const NcclSources& sources, int64_t hosts) {
  std::vector<NcclSetting> out;
  const auto add = [&](NcclSetting setting) {
    const bool known = std::any_of(out.begin(), out.end(), [&](const NcclSetting& other) {
      return other.name == setting.name;
    });
    if (!known) out.push_back(std::move(setting));
  };
  for (const auto& [name, value] : sources.environment) add({name, value, "environment", ""});
  for (const auto& [path, variables] : sources.files) {
    for (const auto& [name, value] : variables) add({name, value, path, ""});
  }
  for (const NcclSetting& choice : choices(hosts)) add(choice);
  for (const auto& [name, meaning] : kDefaults) add({name, meaning, "NCCL's default", ""});
  return out;
}

void apply_nccl_settings(const std::vector<NcclSetting>& settings) {
  for (const NcclSetting& setting : settings) {
    if (setting.origin == "tutti") setenv(setting.name.c_str(), setting.value.c_str(), 0);
  }
}

std::string nccl_settings_text(const std::vector<NcclSetting>& settings) {
  std::vector<std::vector<std::string>> rows = {{"NCCL setting", "value", "from"}};
  for (const NcclSetting& setting : settings) {
    rows.push_back({setting.name, setting.value,
                    setting.origin + (setting.why.empty() ? "" : " (" + setting.why + ")")});
  }
  return format_table(rows);
}

}  // namespace tutti::comm
