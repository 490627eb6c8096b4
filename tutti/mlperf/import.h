// Adds scored results to the user's file of published results.
//
// A row says that a machine did it, and `claim` takes it as proof. So only results of the closed
// division that comply are rows (compliance.h: too few runs or faster convergence than the
// reference allows are errors there); in the open division model and target are free, so that its
// times say nothing about another claim.
#pragma once

#include <optional>
#include <string>

#include "tutti/base/file.h"
#include "tutti/catalog/published.h"
#include "tutti/mlperf/folder.h"
#include "tutti/mlperf/ruleset.h"
#include "tutti/mlperf/score.h"

namespace tutti::mlperf {

struct ImportedResult {
  std::optional<catalog::PublishedResult> row;  // none: refused
  std::string reason;                           // why it was refused
  bool too_fast = false;                        // and it has no other error
};

// `score` is that of `folder` by `ruleset`. The round of the row is that of the path, or, where the
// path has none and `ruleset_asked`, that of the ruleset. Throws usage for a result without a round
// and for one of another round than the ruleset's; corrupt where the system description does not
// say which accelerators and how many.
ImportedResult import_result(FileSystem& files, const ResultFolder& folder, const Ruleset& ruleset,
                             bool ruleset_asked, const Score& score);

}  // namespace tutti::mlperf
