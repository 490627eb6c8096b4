// Where a run's data comes from, by the files next to its corpora; its teacher; and where and with
// which program it runs.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/engine/stream.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/events.h"

namespace tutti::train {

// `role` is "training" or "validation". What PREFIX.meta.json does not say stays empty: a corpus
// made elsewhere has none, and an unreadable one must not keep a run from its data.
telemetry::CorpusDescribed describe_corpus(FileSystem& files, const std::string& role,
                                           const std::string& prefix, const data::Corpus& corpus);

// Identifies the corpora of a training set beyond their names: of each, {"tokens", "documents",
// "bin_xxh3"}; of one that was made elsewhere the last is empty, and "pieces_xxh3" is of 64 pieces
// of its tokens. Kept in checkpoints.
Json identify_corpora(FileSystem& files, const data::Dataset& set);

// Throws usage naming the first corpus of `set`, which are `now`, that is not the one which the run
// in `run_folder` read when it was saved. `saved` is null in checkpoints of earlier versions.
void check_same_corpora(const Json& saved, const Json& now, const data::Dataset& set,
                        const std::string& run_folder);

// The machine, this program and the threads that `stream` uses. Peaks are left at zero.
telemetry::MachineDescribed machine_described(const spec::Recipe& recipe,
                                              const engine::Stream& stream);

// The teacher of a run, for its events.
telemetry::TeacherDescribed describe_teacher(const spec::Recipe& recipe,
                                             const checkpoint::Teacher& teacher);

}  // namespace tutti::train
