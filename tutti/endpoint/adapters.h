// Adapters beside a served model: of a run that trained them (lora), or of a folder that PEFT or
// `tutti checkpoint export-adapter` wrote.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/endpoint/model.h"

namespace tutti::endpoint {

// Reads the adapters at `path` into `model`, to be called `name`; before an engine is made of it.
// Throws not_found, corrupt, usage or unsupported naming path and remedy: for what holds no
// adapters, for those of another model and, where both are runs, of another checkpoint, and for a
// model that has adapters of its own.
void add_adapter(FileSystem& files, LoadedModel& model, const std::string& name,
                 const std::string& path);

}  // namespace tutti::endpoint
