// Shared by the readers of the catalog's kinds: a quantity or a text that a kind does not know is a
// typing error, not something to be ignored.
#pragma once

#include <string>
#include <vector>

#include "tutti/catalog/entry.h"

namespace tutti::catalog {

// Throws usage naming the file, the quantity and the nearest known one.
void check_quantities(const Entry& entry, const std::vector<std::string>& known);
// The same of its texts.
void check_texts(const Entry& entry, const std::vector<std::string>& known);

}  // namespace tutti::catalog
