// Where a run's data comes from, told from the files beside its corpora; its teacher; and where and
// with which program it runs.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/data/corpus.h"
#include "tutti/engine/stream.h"
#include "tutti/spec/recipe.h"
#include "tutti/telemetry/events.h"

namespace tutti::train {

// `role` is "training" or "validation". What PREFIX.meta.json does not say stays empty: a corpus
// made elsewhere has none, and an unreadable one must not keep a run from its data.
telemetry::CorpusDescribed describe_corpus(FileSystem& files, const std::string& role,
                                           const std::string& prefix, const data::Corpus& corpus);

// The machine, this program and the threads that `stream` uses. Peaks are left at zero.
telemetry::MachineDescribed describe_place(const spec::Recipe& recipe,
                                           const engine::Stream& stream);

// The teacher of a run, for its events.
telemetry::TeacherDescribed describe_teacher(const spec::Recipe& recipe,
                                             const checkpoint::Teacher& teacher);

}  // namespace tutti::train
