#include "tutti/catalog/known_quantities.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::catalog {

namespace {

void check_known(const Entry& entry, const char* map, const char* what, const std::string& key,
                 const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), key) != known.end()) return;
  const std::string near = nearest_word(key, known);
  fail(ErrorKind::usage, "{}: {}.{}: a {} has no such {};{} known: {}", entry.origin, map, key,
       entry.kind, what, near.empty() ? "" : " did you mean '" + near + "'?", join(known, ", "));
}

}  // namespace

void check_quantities(const Entry& entry, const std::vector<std::string>& known) {
  for (const auto& item : entry.quantities) {
    check_known(entry, "quantities", "quantity", item.first, known);
  }
}

void check_texts(const Entry& entry, const std::vector<std::string>& known) {
  for (const auto& item : entry.texts) check_known(entry, "texts", "text", item.first, known);
}

}  // namespace tutti::catalog
