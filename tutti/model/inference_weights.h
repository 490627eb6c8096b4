// The parameters of a model as inference reads them: each in the type that is computed in, or, for
// matrices that products read (spec/model/packed_params.h), packed to 8 or 4 bits
// (base/packed_weights.h). Parameters are packed as they arrive, row by row, so that nothing else
// is ever whole in memory.
//
// The experts of a layer are packed one by one, each from a multiple of kPackedAlignment on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/packed_weights.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/model/parameters.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/params.h"

namespace tutti::model {

class InferenceWeights {
 public:
  // Zeros. compute: f32 or bf16; `pack`: of the packed matrices, none without.
  InferenceWeights(const spec::ModelConfig& model, spec::ParamLayout layout, DType compute,
                   std::optional<PackKind> pack);

  // Elements [first, first + count) of a parameter, whole rows of it. Many are packed by several
  // threads.
  void set(const spec::PlacedParam& placed, int64_t first, int64_t count, const float* values);

  // The same of a parameter that is packed, from codes and scales that are: the numbers of the
  // codes [rows, columns] (set_codes of base/packed_weights.h) and the scales [rows, columns /
  // kPackGroup], rows [first_row, first_row + rows) of all matrices of the parameter. The bits are
  // those that set() makes of the values that were packed.
  void set_packed(const spec::PlacedParam& placed, int64_t first_row, int64_t rows,
                  const int8_t* numbers, const bf16* scales);
  // The kind in which a parameter is packed.
  std::optional<PackKind> packed_kind(const spec::PlacedParam& placed) const;

  const spec::ParamLayout& layout() const { return layout_; }
  DType compute() const { return compute_; }
  std::optional<PackKind> pack() const { return pack_; }
  int64_t bytes() const { return arena_->bytes(); }

  // Views, which these weights must outlive.
  Parameters parameters() const;

 private:
  struct Slot {
    int64_t offset = 0;                          // bytes in the arena
    std::optional<engine::PackedMatrix> packed;  // of the first expert, or the whole matrix
  };
  const Slot& slot(const spec::PlacedParam& placed) const;
  void set_rows(const Slot& to, int64_t first, int64_t count, int64_t columns, const float* values);
  void* at(const Slot& slot) const { return static_cast<char*>(arena_->data()) + slot.offset; }

  spec::ParamLayout layout_;
  DType compute_;
  std::optional<PackKind> pack_;
  std::vector<Slot> slots_;  // in the order of layout_.params
  std::unique_ptr<engine::Arena> arena_;
};

// Makes the flat f32 parameters of a layout the numbers that they stand for when they are packed as
// `pack`, for passes that read no packed weights, such as evaluation's.
void round_to_packed(const spec::ModelConfig& model, const spec::ParamLayout& layout, PackKind pack,
                     float* flat);

}  // namespace tutti::model
