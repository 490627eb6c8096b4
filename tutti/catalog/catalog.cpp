#include "tutti/catalog/catalog.h"

#include <map>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::catalog {
namespace {

constexpr const char* kSuffix = ".yaml";

// Entries of one kind by name, from all folders.
std::map<std::string, Entry> load_kind(FileSystem& files, const std::vector<std::string>& folders,
                                       const std::string& subfolder, const std::string& kind) {
  std::map<std::string, Entry> entries;
  for (const std::string& folder : folders) {
    const std::string path = join_path(folder, subfolder);
    if (!files.is_directory(path)) continue;
    std::map<std::string, std::string> seen;
    for (const DirectoryEntry& file : files.list(path)) {
      if (file.is_directory || !ends_with(file.name, kSuffix)) continue;
      Entry entry = load_entry(files, join_path(path, file.name));
      if (entry.kind != kind) {
        fail(ErrorKind::usage, "{}: kind: '{}', but files in {}/ are of kind {}", entry.origin,
             entry.kind, subfolder, kind);
      }
      if (const auto [at, added] = seen.emplace(entry.name, entry.origin); !added) {
        fail(ErrorKind::usage, "{}: name: '{}' is taken by {}", entry.origin, entry.name,
             at->second);
      }
      entries[entry.name] = std::move(entry);
    }
  }
  return entries;
}

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
    catalog.prices.push_back(price_from(entry));
    if (find(catalog.systems, catalog.prices.back().system) == nullptr) {
      fail(ErrorKind::usage, "{}: texts.system: no system '{}' in the catalog", entry.origin,
           catalog.prices.back().system);
    }
  }
  return catalog;
}

}  // namespace tutti::catalog
