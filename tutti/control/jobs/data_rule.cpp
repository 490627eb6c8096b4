#include "tutti/control/jobs/data_rule.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::control {

const char* data_class_name(DataClass data_class) {
  switch (data_class) {
    case DataClass::public_: return "public";
    case DataClass::internal: return "internal";
    case DataClass::restricted: return "restricted";
  }
  return "";
}

DataClass parse_data_class(std::string_view name) {
  if (name.empty()) return DataClass::internal;
  for (const DataClass each : {DataClass::public_, DataClass::internal, DataClass::restricted}) {
    if (name == data_class_name(each)) return each;
  }
  fail(ErrorKind::usage, "data class '{}' is not known; accepted: public, internal, restricted",
       name);
}

std::optional<std::string> refusal(DataClass data, const std::vector<std::string>& regions,
                                   const SitePolicy& site) {
  if (data > site.highest) {
    return fmt::format("rule 1: '{}' holds data up to class {}, and this is {}", site.name,
                       data_class_name(site.highest), data_class_name(data));
  }
  if (data == DataClass::public_) return std::nullopt;
  if (data == DataClass::restricted && regions.empty()) {
    return std::string("rule 3: restricted data run only for projects that name their regions");
  }
  if (!regions.empty() && std::find(regions.begin(), regions.end(), site.region) == regions.end()) {
    return fmt::format("rule 2: {} data of this project stay in {}, and '{}' is in '{}'",
                       data_class_name(data), join(regions, ", "), site.name, site.region);
  }
  return std::nullopt;
}

std::optional<DataClass> class_of_unlabelled(const std::vector<std::string>& regions,
                                             const SitePolicy& site) {
  if (site.unlabelled) return site.unlabelled;
  if (site.declares_classes || !regions.empty()) return site.highest;
  return std::nullopt;
}

std::optional<std::string> refusal(const DataLabel& label, const std::vector<std::string>& regions,
                                   const SitePolicy& site) {
  DataClass counted = parse_data_class(label.data_class);
  std::string because = label.source;
  if (!label.unlabelled.empty()) {
    const auto least = class_of_unlabelled(regions, site);
    if (least && *least > counted) {
      counted = *least;
      because = fmt::format(
          "{} states no class, which counts as {} here; label it with `tutti data prepare "
          "--data-class`, or ask an admin for `tutti admin site --unlabelled`",
          label.unlabelled, data_class_name(counted));
    }
  }
  auto rule = refusal(counted, regions, site);
  if (rule && !because.empty()) *rule += fmt::format(" ({})", because);
  return rule;
}

}  // namespace tutti::control
