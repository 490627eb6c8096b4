#include "tutti/catalog/known_quantities.h"

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::catalog {

void check_quantities(const Entry& entry, const std::vector<std::string>& known) {
  for (const auto& [key, quantity] : entry.quantities) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest_word(key, known);
    fail(ErrorKind::usage, "{}: quantities.{}: a {} has no such quantity;{} known: {}",
         entry.origin, key, entry.kind, near.empty() ? "" : " did you mean '" + near + "'?",
         join(known, ", "));
  }
}

}  // namespace tutti::catalog
