// `tutti checkpoint import` and `export` of GGUF files: through a folder of Hugging Face's kind
// beside the result, which is removed when the work ends, however it ends.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/checkpoint/gguf/convert.h"
#include "tutti/train/tasks/interchange.h"

namespace tutti::train {

// As import_run, of the GGUF file `source`. Throws as checkpoint::write_folder_of too.
ImportedRun import_gguf(FileSystem& files, const std::string& source, const std::string& folder,
                        const ImportOptions& options);

struct ExportedGguf {
  ExportedRun run;
  checkpoint::GgufWritten file;
};

// As export_run, into the GGUF file `path`; of `options` dtype and shard_bytes are not used. Throws
// usage when `path` is there already, and as checkpoint::write_gguf_of.
ExportedGguf export_gguf(FileSystem& files, const std::string& run, const std::string& path,
                         checkpoint::GgufType type, ExportOptions options);

}  // namespace tutti::train
