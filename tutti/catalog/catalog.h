// Everything under a catalog folder (chips/, systems/, fabrics/, sites/, prices/ with one YAML file
// per entry), read and checked as a whole: names are unique, references resolve.
#pragma once

#include <string>
#include <vector>

#include "tutti/catalog/sites.h"
#include "tutti/catalog/systems.h"

namespace tutti::catalog {

struct Catalog {
  std::vector<Chip> chips;
  std::vector<System> systems;
  std::vector<Site> sites;
  std::vector<Price> prices;

  // By name or alias, ignoring case; throw not_found with the nearest and all known names.
  const Chip& chip(const std::string& name) const;
  const System& system(const std::string& name) const;
  const Site& site(const std::string& name) const;
  const Price* price_of(const std::string& system) const;  // nullptr: none
};

// `folders` are read in order; an entry of a later folder replaces one of the same name, so that a
// user's own folder can correct ours. Throws usage or not_found naming file and key.
Catalog load_catalog(FileSystem& files, const std::vector<std::string>& folders);

}  // namespace tutti::catalog
