// Streams one tensor between the folder of a Hugging Face model and a checkpoint: reorders,
// converts and passes it on in pieces, so that no complete tensor is in memory besides its mapped
// file.
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
  // Called with the number of leading bytes of the source that were read and are not needed again.
  // May throw to abort.
  std::function<void(int64_t bytes)> read = {};
};

// Throws like convert_elements.
void stream_tensor(const StreamedTensor& tensor, const AppendBytes& append);

// Converts `part`, stored as `type` at `data`, to rows of a parameter of Tutti.
RowSource rows_to_ours(const HfPart& part, DType type, const char* data, RopeLayout layout,
                       int64_t head_dim);
// Converts the rows of a parameter at `data` to `part`.
RowSource rows_from_ours(const HfPart& part, DType type, const char* data, RopeLayout layout,
                         int64_t head_dim);

}  // namespace tutti::checkpoint
