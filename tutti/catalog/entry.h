// One file of the catalog, which holds the planner's data about hardware and prices: chips,
// systems, fabrics, sites, prices. All kinds share one form, so a user adds a system with one file.
//
//   kind: chip                       # chip, system, fabric, site, price, node, storage
//   name: H100
//   aliases: [H100-SXM-80GB]         # other names it is published under
//   source: {text: "vendor table", date: 2026-09-05}     # of every number below
//   texts: {vendor: NVIDIA}          # names of other entries, free text
//   quantities:
//     dense_bf16_tflops: 989
//     board_power_watts: {value: 700, source: "datasheet", date: 2025-03-01}   # its own source
//   tiers:                           # fabrics only, nearest first: fabric.h
//     - {name: nvlink, chips_count: 8, gigabytes_per_second: 450, latency_microseconds: 2}
//
// A number's name ends in its unit (kUnits); a name without one, a number without source or date,
// a value that is not finite or is negative, and an unknown key are errors of kind usage that name
// file, line, key and remedy.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::catalog {

struct Quantity {
  double value = 0;  // in the unit its name ends in
  std::string source;
  std::string date;  // YYYY-MM-DD
};

using Quantities = std::map<std::string, Quantity>;

struct Tier {
  std::string name;
  std::map<std::string, std::string> texts;
  Quantities quantities;
};

struct Entry {
  std::string kind;
  std::string name;
  std::vector<std::string> aliases;
  std::map<std::string, std::string> texts;
  Quantities quantities;
  std::vector<Tier> tiers;
  std::string origin;  // path it was read from

  bool answers_to(const std::string& wanted) const;  // name or alias, ignoring case
  // The value of `key`; throws usage naming the file when it is absent.
  double number(const std::string& key) const;
  double number_or(const std::string& key, double fallback) const;
  std::string text(const std::string& key) const;  // throws usage when absent
  std::string text_or(const std::string& key, const std::string& fallback) const;
};

// The unit that a quantity's name ends in ("_watts" gives "watts"), or nothing.
std::optional<std::string> unit_of(const std::string& quantity_name);
const std::vector<std::string>& known_units();

Entry parse_entry(const std::string& text, const std::string& origin);
Entry load_entry(FileSystem& files, const std::string& path);

}  // namespace tutti::catalog
