// One tensor between the folder of a Hugging Face model and a checkpoint: reordered, converted,
// and handed on in pieces, so that no tensor is ever whole in memory beside its mapped file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tutti/base/dtype.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/checkpoint/store/row_order.h"
#include "tutti/checkpoint/store/snapshot.h"

namespace tutti::checkpoint {

enum class RopeLayout { half, interleaved };  // of the files of transformers; see store/row_order.h

struct StreamedTensor {
  std::string name;  // for errors
  RowSource rows;    // element_bytes is that of `from`
  DType from = DType::f32;
  DType to = DType::f32;
  // Called with how many bytes of the source have been read from its start, none of which is needed
  // again. May throw to give up.
  std::function<void(int64_t bytes)> read = {};
};

// Throws as convert_elements does.
void stream_tensor(const StreamedTensor& tensor, const AppendBytes& append);

// How `part`, stored as `type` at `data`, becomes rows of a parameter of Tutti.
RowSource rows_to_ours(const HfPart& part, DType type, const char* data, RopeLayout layout,
                       int64_t head_dim);
// How the rows of a parameter at `data` become `part`.
RowSource rows_from_ours(const HfPart& part, DType type, const char* data, RopeLayout layout,
                         int64_t head_dim);

}  // namespace tutti::checkpoint
