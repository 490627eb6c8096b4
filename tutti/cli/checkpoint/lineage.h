// `tutti checkpoint lineage` and `approve`: where a checkpoint comes from, down to the texts, and
// who answers for it.
#pragma once

#include "tutti/cli/program/commands.h"

namespace tutti::cli {

void add_checkpoint_lineage(CLI::App& checkpoint, Action& action);

}  // namespace tutti::cli
