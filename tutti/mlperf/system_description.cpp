#include "tutti/mlperf/system_description.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "tutti/base/json.h"
#include "tutti/base/text.h"

namespace tutti::mlperf {
namespace {

constexpr std::array<const char*, 33> kFields = {"submitter",
                                                 "division",
                                                 "status",
                                                 "system_name",
                                                 "number_of_nodes",
                                                 "host_processors_per_node",
                                                 "host_processor_model_name",
                                                 "host_processor_core_count",
                                                 "host_processor_vcpu_count",
                                                 "host_processor_frequency",
                                                 "host_processor_caches",
                                                 "host_processor_interconnect",
                                                 "host_memory_capacity",
                                                 "host_storage_type",
                                                 "host_storage_capacity",
                                                 "host_networking",
                                                 "host_networking_topology",
                                                 "host_memory_configuration",
                                                 "accelerators_per_node",
                                                 "accelerator_model_name",
                                                 "accelerator_host_interconnect",
                                                 "accelerator_frequency",
                                                 "accelerator_on-chip_memories",
                                                 "accelerator_memory_configuration",
                                                 "accelerator_memory_capacity",
                                                 "accelerator_interconnect",
                                                 "accelerator_interconnect_topology",
                                                 "cooling",
                                                 "hw_notes",
                                                 "framework",
                                                 "other_software_stack",
                                                 "operating_system",
                                                 "sw_notes"};

constexpr std::array<std::string_view, 4> kStatuses = {"Available on-premise", "Available cloud",
                                                       "Research, Development, or Internal (RDI)",
                                                       "Preview"};

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A count, also in text: "64".
std::optional<int64_t> count_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_number_integer()) return found->get<int64_t>();
  if (!found->is_string()) return std::nullopt;
  const std::string_view text = trim(found->get_ref<const std::string&>());
  int64_t count = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (status != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return count;
}

}  // namespace

std::optional<int64_t> SystemDescription::accelerators() const {
  if (!nodes || !accelerators_per_node) return std::nullopt;
  return *nodes * std::max<int64_t>(1, *accelerators_per_node);
}

std::vector<std::string> system_fields() { return {kFields.begin(), kFields.end()}; }

SystemCheck check_system(FileSystem& files, const std::string& path, const Ruleset& ruleset) {
  SystemCheck check;
  Findings findings(path);
  const std::string text = read_file(files, path);
  const Json object = Json::parse(text, nullptr, false);
  if (!object.is_object()) {
    findings.error(0, "system.json", "not a JSON object", "write one object of fields");
    check.findings = findings.take();
    return check;
  }
  for (const char* field : kFields) {
    if (!object.contains(field)) {
      findings.error(0, "system.field", fmt::format("no field '{}'", field),
                     fmt::format("add \"{}\": \"\", with its value where it is known", field));
    }
  }
  const std::string status = text_of(object, "status");
  if (ruleset.checks_availability && object.contains("status") &&
      std::find(kStatuses.begin(), kStatuses.end(), status) == kStatuses.end()) {
    findings.error(0, "system.status", fmt::format("status is '{}'", status),
                   fmt::format("accepted: {}", fmt::join(kStatuses, "; ")));
  }
  check.description = {text_of(object, "submitter"),
                       text_of(object, "system_name"),
                       text_of(object, "division"),
                       text_of(object, "accelerator_model_name"),
                       status,
                       count_of(object, "number_of_nodes"),
                       count_of(object, "accelerators_per_node")};
  check.findings = findings.take();
  return check;
}

}  // namespace tutti::mlperf
