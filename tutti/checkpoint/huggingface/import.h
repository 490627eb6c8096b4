// Imports a Hugging Face model as a checkpoint of Tutti: only parameters, without optimizer state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/stream.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/checkpoint/store/writer.h"

namespace tutti::checkpoint {

struct HfImportOptions {
  std::optional<DType> dtype =
      {};  // f32, bf16 or f16; absent: as in the files, so that nothing is lost
  RopeLayout rope_layout = RopeLayout::half;
  WriteOptions write = {};
  // Receives the bytes read and in total; an exception from it ends the import.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
};

struct HfImported {
  Written written;
  int64_t tensors = 0;       // read from the files
  int64_t parameters = 0;    // elements
  DType dtype = DType::f32;  // the widest stored type
};

// Locates and checks the source of each parameter: every tensor of the model must exist, with the
// shape that config.json implies and a type of parameters, and no others may exist. Throws usage or
// unsupported naming file and tensor. Matrices may be packed where HfModel::packing says so; a
// parameter's are all packed or none. A head that repeats tied embeddings must be equal to them.
std::vector<HfParameter> locate_parameters(const HfFolder& folder, const HfModel& model);

// The elements of a located parameter as `to`, in order, in pieces of whole elements. `read` is
// called with the bytes of a part read so far, and whether that is all of it; what it throws ends
// the reading. Memory: as import_parameters.
void stream_parameter(const HfFolder& folder, const HfModel& model, const HfParameter& parameter,
                      DType to, RopeLayout rope_layout, const AppendBytes& append,
                      const std::function<void(int64_t part_bytes, bool whole)>& read = {});

// Whether a parameter's matrices are packed in the folder (pack_quantized.h): then all of them are,
// in the kind that HfModel::packing has for it. Of a located parameter.
std::optional<PackKind> packed_kind(const HfFolder& folder, const HfModel& model,
                                    const HfParameter& parameter);

// Throws unsupported where the weights of a model are packed: `what` names what cannot be done with
// it and ends the sentence "'FOLDER' ...".
void refuse_packed(const HfModel& model, const std::string& folder, const std::string& what);

// Writes step-NNNNNNNN of `state` into `checkpoints`. Memory: a few MiB besides the mapped files,
// whose pages are released as they are read; transposed tensors (GPT-2) one at a time.
HfImported import_parameters(FileSystem& files, const HfFolder& folder, const HfModel& model,
                             const State& state, const std::string& checkpoints,
                             const HfImportOptions& options);

}  // namespace tutti::checkpoint
