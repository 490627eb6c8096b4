// Generation of a fixed number of texts side by side: each has one page of the cache of
// paged_decode.h, as long as a text can become.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/model/paged_decode.h"
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
  // Of weights in any form.
  Decoder(const spec::ModelConfig& model, const Parameters& parameters, DType compute,
          int64_t capacity, int64_t sequences = 1);

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
  int64_t capacity() const { return core_.sizes().page_rows; }
  int64_t bytes() const { return core_.bytes(); }

 private:
  PagedDecoder::Piece piece(int64_t sequence, std::span<const int32_t> tokens) const;

  PagedDecoder core_;
  std::vector<int64_t> positions_;  // per sequence: tokens fed
  std::vector<int32_t> pages_;      // the page of each sequence
};

}  // namespace tutti::model
