// Forward passes for generation: a few new tokens at a time, with a KV cache.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/model/bind.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/params.h"

namespace tutti::model {

// Decodes up to `sequences` texts in a batch, each at its own position of its own cache. The
// constructor allocates all memory.
class Decoder {
 public:
  // `weights` are the flat parameters of `layout` in `compute`; they must outlive the decoder.
  // capacity: tokens in the cache of a sequence, at most model.context with learned positions.
  Decoder(const spec::ModelConfig& model, const spec::ParamLayout& layout, void* weights,
          DType compute, int64_t capacity, int64_t sequences = 1);

  // Appends at least one token to a sequence and returns the logits [V] f32 after the last one.
  // position + tokens must not exceed the capacity.
  std::vector<float> feed(engine::Stream& stream, const std::vector<int32_t>& tokens,
                          int64_t sequence = 0);

  // Appends one token to each of several sequences in one pass, which reads every weight once.
  // Returns their logits, in the order of `next`, which must not name a sequence twice.
  struct Next {
    int64_t sequence = 0;
    int32_t token = 0;
  };
  std::vector<std::vector<float>> step(engine::Stream& stream, const std::vector<Next>& next);

  // Clears a sequence, so that its cache can be reused.
  void clear(int64_t sequence) { positions_[static_cast<size_t>(sequence)] = 0; }

  int64_t position(int64_t sequence = 0) const { return positions_[static_cast<size_t>(sequence)]; }
  int64_t capacity() const { return capacity_; }

 private:
  // Consecutive rows of a pass that belong to one sequence.
  struct Piece {
    int64_t sequence, first, count, past;
  };
  void forward(engine::Stream& stream, const std::vector<int32_t>& tokens,
               const std::vector<Piece>& pieces);
  void run_block(engine::Stream& stream, size_t index, const std::vector<Piece>& pieces,
                 int64_t count, bool has_branch);

  class Carver;
  void carve_moe(Carver& carver, int64_t chunk);
  MoeSaved moe_rows(int64_t count) const;

  // The first `count` rows of a buffer.
  static engine::Matrix rows(const engine::Matrix& buffer, int64_t count);

  spec::ModelConfig model_;
  DType compute_;
  int64_t capacity_;
  std::vector<int64_t> positions_;  // per sequence: tokens fed
  std::vector<float> frequency_, window_frequency_;
  Embedding embedding_;
  std::vector<BlockLayer> blocks_;
  NormLayer final_norm_;
  LossLayer head_;

  std::unique_ptr<engine::Arena> arena_;
  std::vector<engine::Matrix> keys_, values_;  // per block [sequences * capacity, K*D] c
  engine::Vector row_positions_;               // [chunk] i32
  engine::Vector row_starts_;                  // [chunk] i32: first visible row of each row
  engine::Matrix residual_;                    // [chunk, H] f32
  engine::Matrix y_, branch_;                  // [chunk, H] c
  engine::Matrix qkv_, attention_;             // [chunk, (A+2K)D], [chunk, A*D] c
  engine::Matrix lse_;                         // [chunk, A] f32, with sinks
  engine::Matrix pre_, act_;                   // [chunk, F or 2F], [chunk, F] c
  MoeSaved moe_;                               // of a chunk, if the model has experts
  engine::Matrix logits_;                      // [sequences, padded V] f32
  engine::Matrix low_rank_;                    // [chunk, columns of adapters] c
};

}  // namespace tutti::model
