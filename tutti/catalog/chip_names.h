// Which chip a product name means: one rule for results, claims and measurements.
#pragma once

#include <string>

#include "tutti/catalog/catalog.h"

namespace tutti::catalog {

// The chip of a product name ("NVIDIA H100-SXM5-80GB"), the longest name or alias that it contains,
// compared as plain_name writes them; nullptr if it is none of the catalog's, or another card of
// one of them, such as a PCIe or NVL form that the catalog does not have: its peak is another.
const Chip* find_chip(const Catalog& catalog, const std::string& product);

}  // namespace tutti::catalog
