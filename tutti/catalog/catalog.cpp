#include "tutti/catalog/catalog.h"

#include <map>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/load_kind.h"

namespace tutti::catalog {
namespace {

template <typename T>
const T* find(const std::vector<T>& items, const std::string& name) {
  for (const T& item : items) {
    if (item.entry.answers_to(name)) return &item;
  }
  return nullptr;
}

template <typename T>
const T& find_or_fail(const std::vector<T>& items, const std::string& name, const char* kind) {
  if (const T* found = find(items, name)) return *found;
  std::vector<std::string> names;
  names.reserve(items.size());
  for (const T& item : items) names.push_back(item.name);
  const std::string near = nearest_word(name, names);
  fail(ErrorKind::not_found, "{}: '{}' is not in the catalog;{} known: {}", kind, name,
       near.empty() ? "" : " did you mean '" + near + "'?", join(names, ", "));
}

}  // namespace

const Chip& Catalog::chip(const std::string& name) const {
  return find_or_fail(chips, name, "chip");
}
const System& Catalog::system(const std::string& name) const {
  return find_or_fail(systems, name, "system");
}
const Site& Catalog::site(const std::string& name) const {
  return find_or_fail(sites, name, "site");
}

const Price* Catalog::price_of(const std::string& system) const {
  for (const Price& price : prices) {
    if (price.system == system) return &price;
  }
  return nullptr;
}

Catalog load_catalog(FileSystem& files, const std::vector<std::string>& folders) {
  Catalog catalog;
  for (const auto& [name, entry] : load_kind(files, folders, "chips", "chip")) {
    catalog.chips.push_back(chip_from(entry));
  }
  const std::map<std::string, Entry> fabrics = load_kind(files, folders, "fabrics", "fabric");
  for (const auto& [name, entry] : fabrics) tiers_from(entry);  // also where no system has it
  for (const auto& [name, entry] : load_kind(files, folders, "systems", "system")) {
    const std::string chip_name = entry.text("chip");
    const Chip* chip = find(catalog.chips, chip_name);
    if (chip == nullptr) {
      fail(ErrorKind::usage, "{}: texts.chip: no chip '{}' in the catalog", entry.origin,
           chip_name);
    }
    const std::string fabric_name = entry.text("fabric");
    const auto fabric = fabrics.find(fabric_name);
    if (fabric == fabrics.end()) {
      fail(ErrorKind::usage, "{}: texts.fabric: no fabric '{}' in the catalog", entry.origin,
           fabric_name);
    }
    catalog.systems.push_back(system_from(entry, *chip, fabric->second));
  }
  for (const auto& [name, entry] : load_kind(files, folders, "sites", "site")) {
    catalog.sites.push_back(site_from(entry));
  }
  for (const auto& [name, entry] : load_kind(files, folders, "prices", "price")) {
    Price price = price_from(entry);
    const System* system = find(catalog.systems, price.system);
    if (system == nullptr) {
      fail(ErrorKind::usage, "{}: texts.system: no system '{}' in the catalog", entry.origin,
           price.system);
    }
    price.system = system->name;
    if (const Price* other = catalog.price_of(price.system)) {
      fail(ErrorKind::usage, "{}: {} has a price already, in {}; to replace it, write name: {}",
           entry.origin, price.system, other->entry.origin, other->name);
    }
    catalog.prices.push_back(std::move(price));
  }
  return catalog;
}

}  // namespace tutti::catalog
