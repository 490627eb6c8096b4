// Forward passes for generation: a few new tokens at a time against a cache of keys and values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/model/bind.h"
#include "tutti/spec/model_config.h"
#include "tutti/spec/params.h"

namespace tutti::model {

// Decodes one sequence. All memory is allocated by the constructor.
class Decoder {
 public:
  // `weights` are the flat parameters of `layout` in `compute`; they must outlive the decoder.
  // capacity: tokens the cache can hold, at most model.context with learned positions.
  Decoder(const spec::ModelConfig& model, const spec::ParamLayout& layout, void* weights,
          DType compute, int64_t capacity);

  // Appends tokens and returns the logits [V] f32 of the position after the last one. At least one
  // token; position() + tokens must not pass the capacity.
  std::vector<float> feed(engine::Stream& stream, const std::vector<int32_t>& tokens);

  int64_t position() const { return position_; }
  int64_t capacity() const { return capacity_; }

 private:
  void feed_chunk(engine::Stream& stream, const int32_t* tokens, int64_t count);
  void run_block(engine::Stream& stream, size_t index, int64_t count, bool has_branch);

  class Carver;
  void carve_moe(Carver& carver);
  MoeSaved moe_rows(int64_t count) const;

  // The first `count` rows of a buffer.
  static engine::Matrix rows(const engine::Matrix& buffer, int64_t count);

  spec::ModelConfig model_;
  DType compute_;
  int64_t capacity_;
  int64_t position_ = 0;
  std::vector<float> frequency_;
  Embedding embedding_;
  std::vector<BlockLayer> blocks_;
  NormLayer final_norm_;
  LossLayer head_;

  std::unique_ptr<engine::Arena> arena_;
  std::vector<engine::Matrix> keys_, values_;  // per block [capacity, K*D] c
  engine::Matrix residual_;                    // [chunk, H] f32
  engine::Matrix y_, branch_;                  // [chunk, H] c
  engine::Matrix qkv_, attention_;             // [chunk, (A+2K)D], [chunk, A*D] c
  engine::Matrix pre_, act_;                   // [chunk, F or 2F], [chunk, F] c
  MoeSaved moe_;                               // of a chunk, where the model has experts
  engine::Matrix logits_;                      // [1, padded V] f32
};

}  // namespace tutti::model
