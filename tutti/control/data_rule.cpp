#include "tutti/control/data_rule.h"

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
                                   const Place& place) {
  if (data > place.highest) {
    return fmt::format("rule 1: '{}' holds data up to class {}, and this is {}", place.name,
                       data_class_name(place.highest), data_class_name(data));
  }
  if (data == DataClass::public_) return std::nullopt;
  if (data == DataClass::restricted && regions.empty()) {
    return std::string("rule 3: restricted data run only for projects that name their regions");
  }
  if (!regions.empty() &&
      std::find(regions.begin(), regions.end(), place.region) == regions.end()) {
    return fmt::format("rule 2: {} data of this project stay in {}, and '{}' is in '{}'",
                       data_class_name(data), join(regions, ", "), place.name, place.region);
  }
  return std::nullopt;
}

}  // namespace tutti::control
