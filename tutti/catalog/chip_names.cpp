#include "tutti/catalog/chip_names.h"

#include <algorithm>
#include <string_view>

#include "tutti/base/text.h"
#include "tutti/catalog/yaml_list.h"

namespace tutti::catalog {
namespace {

// Its peak is that of a module; cards of it are slower.
bool has_sxm_form(const Chip& chip) {
  const auto& aliases = chip.entry.aliases;
  return std::any_of(aliases.begin(), aliases.end(), [](const std::string& alias) {
    return plain_name(alias).find("sxm") != std::string::npos;
  });
}

// Whether a plain product name says that it is a card for PCIe, or of an NVL pair; "nvl72" is a
// rack.
bool names_card(std::string_view plain) {
  if (plain.find("pcie") != std::string_view::npos) return true;
  const size_t nvl = plain.find("nvl");
  if (nvl == std::string_view::npos) return false;
  const std::string_view behind = plain.substr(nvl + 3);
  if (starts_with(behind, "ink")) return false;
  return starts_with(behind, "94gb") || starts_with(behind, "141gb") || behind.empty() ||
         behind.front() < '0' || behind.front() > '9';
}

}  // namespace

const Chip* find_chip(const Catalog& catalog, const std::string& product) {
  const std::string plain = plain_name(product);
  const Chip* best = nullptr;
  size_t longest = 0;
  const auto consider = [&](const Chip& chip, const std::string& name) {
    const std::string own = plain_name(name);
    if (own.size() > longest && plain.find(own) != std::string::npos) {
      best = &chip;
      longest = own.size();
    }
  };
  for (const Chip& chip : catalog.chips) {
    consider(chip, chip.name);
    for (const std::string& alias : chip.entry.aliases) consider(chip, alias);
  }
  // The same chip on a card: it has a name of its own, or nothing is known of it.
  const bool other_form = best != nullptr && has_sxm_form(*best) && names_card(plain) &&
                          !names_card(plain_name(best->name));
  return other_form ? nullptr : best;
}

}  // namespace tutti::catalog
