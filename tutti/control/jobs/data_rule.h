// Which sites may process which data. Data is public, internal or restricted (internal by default);
// a site names the most confidential class it may hold; and a project may name the only regions
// that its internal and restricted data may be in.
//
//   1. The class of the data is at most the class of the site.
//   2. Internal and restricted data of a project with regions stay in these regions.
//   3. Restricted data run only for projects that name their regions.
//
// The class of a job's data is the strictest that its recipe, its corpora, and the checkpoints it
// begins with or learns from state. Unlabelled data have the recipe's class, unless the site
// declares classes or the project names regions: then it counts as the strictest class that the
// site may hold, or as an admin has set.
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

struct SitePolicy {
  std::string name;
  std::string region;
  DataClass highest = DataClass::internal;
  bool declares_classes = false;  // an admin has said what it may hold
  std::optional<DataClass> unlabelled =
      {};  // what data without a class count as; absent: see above
};

// What data of a project with these regions count as where they state no class; absent: as what the
// recipe says.
std::optional<DataClass> class_of_unlabelled(const std::vector<std::string>& regions,
                                             const SitePolicy& site);

// What is known of all the data that a job reads.
struct DataLabel {
  bool operator==(const DataLabel&) const = default;
  std::string data_class;  // the strictest that is stated; empty: none is
  std::string source;      // what states it: "corpus 'x' of data.train"; empty: the recipe
  std::string unlabelled;  // the first that states none; empty: all do
};

// The text of the first rule that forbids it; absent: allowed.
std::optional<std::string> refusal(DataClass data, const std::vector<std::string>& regions,
                                   const SitePolicy& site);
// Of data with this label, and with what the label came from.
std::optional<std::string> refusal(const DataLabel& label, const std::vector<std::string>& regions,
                                   const SitePolicy& site);

}  // namespace tutti::control
