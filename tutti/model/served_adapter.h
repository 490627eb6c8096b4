// The adapters of one fine-tuned model, kept beside a base model that many of them share while it
// is served: rows of a pass of paged_decode.h say which they take.
//
// Their products are those of few rows (engine/decode_ops.h), however many there are: a row's
// results are the same bits whatever the other rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/low_rank.h"

namespace tutti::model {

class ServedAdapter {
 public:
  // One term over the outputs [first_row, first_row + b.rows) of a projection.
  struct Term {
    engine::Matrix a;  // [rank, in] c
    engine::Matrix b;  // [rows, rank] c
    int64_t first_row = 0;
    float scale = 1;
  };

  // compute: f32 or bf16, to which the values are rounded. The terms fit the model.
  ServedAdapter(const spec::ModelConfig& model, DType compute,
                const std::vector<spec::LowRankTerm>& terms);

  std::span<const Term> terms(int64_t layer, spec::Projection projection) const;
  int64_t bytes() const { return arena_->bytes(); }
  int64_t largest_rank() const { return largest_rank_; }

 private:
  static constexpr size_t kProjections = 4;
  std::vector<std::vector<Term>> terms_;  // [layers * kProjections]
  std::unique_ptr<engine::Arena> arena_;
  int64_t largest_rank_ = 1;
};

// Memory of adapter_forward(), for adapters up to a rank and projections up to a width.
struct AdapterBuffers {
  engine::Matrix low_rank;  // [kFewRows, rank] c
  engine::Matrix out;       // [kFewRows, width] f32
};

// y += scale * (x A^T) B^T of each term; x [N, in], y [N, out] of the compute type.
void adapter_forward(engine::Stream& stream, std::span<const ServedAdapter::Term> terms,
                     const engine::Matrix& x, const engine::Matrix& y,
                     const AdapterBuffers& buffers);

}  // namespace tutti::model
