// Which data may be worked on where. Data is public, internal or restricted (a recipe that does not
// say is internal); a place names the most confidential class it may hold; and a project may name
// the only regions that its internal and restricted data may be in.
//
//   1. The class of the data is at most the class of the place.
//   2. Internal and restricted data of a project with regions stay in these regions.
//   3. Restricted data run only for projects that name their regions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::control {

// NOLINTNEXTLINE(readability-identifier-naming): `public` is a keyword
enum class DataClass { public_, internal, restricted };

const char* data_class_name(DataClass data_class);
// "" is internal. Throws usage listing the classes.
DataClass parse_data_class(std::string_view name);

struct Place {
  std::string name;
  std::string region;
  DataClass highest = DataClass::internal;
};

// The text of the first rule that forbids it; absent: allowed.
std::optional<std::string> refusal(DataClass data, const std::vector<std::string>& regions,
                                   const Place& place);

}  // namespace tutti::control
