// Forward passes for inference against a cache of keys and values in pages, or of the rows that
// latent attention computes them from (latent_decode.h): rows of any texts side by side, each text
// at its own position and with its own pages.
//
// The rows of a pass are computed together, so every weight is read once. A row's results are the
// same bits whatever the other rows of the pass, as long as there are at most engine::kFewRows;
// with more, sums of products may round differently (engine/decode_ops.h). With latent attention
// they may round differently with any other number of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tutti/engine/arena.h"
#include "tutti/engine/stream.h"
#include "tutti/model/bind.h"
#include "tutti/model/latent_decode.h"
#include "tutti/model/served_adapter.h"
#include "tutti/spec/model/config.h"
#include "tutti/spec/model/params.h"

namespace tutti::model {

struct DecoderSizes {
  int64_t pages = 0;       // of the cache
  int64_t page_rows = 0;   // positions of a page
  int64_t rows = 0;        // most of a pass
  int64_t logit_rows = 0;  // most of logits()
  // Most of the rank of a served adapter; 0: there are none.
  int64_t adapter_rank = 0;
};

// All memory is allocated by the constructor.
class PagedDecoder {
 public:
  // The weights that `parameters` shows must outlive the decoder.
  PagedDecoder(const spec::ModelConfig& model, const Parameters& parameters, DType compute,
               const DecoderSizes& sizes);

  // Tokens that follow each other in one text, at positions past, past + 1, ... Page i holds
  // positions i * page_rows and those after it; there are pages for all positions up to the last
  // token. Of all before `past` keys and values are in the cache; those of the tokens are added.
  struct Piece {
    std::span<const int32_t> tokens;
    int64_t past = 0;
    std::span<const int32_t> pages;
    const ServedAdapter* adapter = nullptr;  // that its rows take, besides the base's weights
  };
  // Rows are numbered through the pieces. At least one token; no position of a page twice.
  void forward(engine::Stream& stream, std::span<const Piece> pieces);

  // Logits [count, V] f32 of some rows of the last pass, in the order of `chosen`; until the next
  // call. Once for a pass.
  engine::Matrix logits(engine::Stream& stream, std::span<const int64_t> chosen);

  const DecoderSizes& sizes() const { return sizes_; }
  // Of the cache and the buffers of a pass.
  int64_t bytes() const { return arena_->bytes(); }

  // Bytes of the cache for one position.
  static int64_t cache_row_bytes(const spec::ModelConfig& model, DType compute);

 private:
  // A call of attention: texts of `queries` rows each.
  struct Attention {
    int64_t first = 0;  // row
    int64_t texts = 0, queries = 0;
    int64_t past = 0;                        // the longest
    int64_t pages = 0;                       // of each text
    int64_t first_text = 0, first_page = 0;  // in pasts_ and page_tables_
  };
  void plan_attention(std::span<const Piece> pieces);
  // y of `count` rows with what the adapters of the pieces add to a projection of a block.
  void add_adapters(engine::Stream& stream, size_t index, spec::Projection projection,
                    const engine::Matrix& x, const engine::Matrix& y) const;
  void store_rows(size_t index, std::span<const Piece> pieces, const engine::Matrix& keys,
                  const engine::Matrix& values);
  void attend(engine::Stream& stream, size_t index);
  // The output of attention for `count` rows y_ to attention_.
  void attend_grouped(engine::Stream& stream, size_t index, std::span<const Piece> pieces,
                      int64_t count);
  void attend_latent(engine::Stream& stream, size_t index, std::span<const Piece> pieces,
                     int64_t count);
  void run_block(engine::Stream& stream, size_t index, std::span<const Piece> pieces, int64_t count,
                 bool has_branch);

  class Carver;
  void carve_moe(Carver& carver, int64_t chunk);
  void carve_latent(Carver& carver, int64_t chunk);
  MoeSaved moe_rows(int64_t count) const;

  // The first `count` rows of a buffer.
  static engine::Matrix rows(const engine::Matrix& buffer, int64_t count);

  spec::ModelConfig model_;
  DType compute_;
  DecoderSizes sizes_;
  std::vector<float> frequency_, window_frequency_;
  Embedding embedding_;
  std::vector<BlockLayer> blocks_;
  NormLayer final_norm_;
  LossLayer head_;

  // Of the pass at hand.
  struct AdaptedRows {
    int64_t first = 0, count = 0;
    const ServedAdapter* adapter = nullptr;
  };
  std::vector<AdaptedRows> adapted_;  // neighbours that take the same are one
  std::vector<Attention> attentions_;
  std::vector<int32_t> pasts_, page_tables_;

  std::unique_ptr<engine::Arena> arena_;
  // Per block [pages * page_rows, K*D] c; with latent attention [.., Dr + R] and its last R
  // columns.
  std::vector<engine::Matrix> keys_, values_;
  LatentRows latent_;               // [rows, ..], with latent attention
  engine::Vector row_tokens_;       // [rows] i32
  engine::Vector row_positions_;    // [rows] i32
  engine::Vector row_starts_;       // [rows] i32: what rows see through the window
  engine::Matrix residual_;         // [rows, H] f32
  engine::Matrix y_, branch_;       // [rows, H] c
  engine::Matrix qkv_, attention_;  // [rows, (A+2K)D], [rows, A*E] c
  engine::Matrix lse_;              // [rows, A] f32, with sinks
  engine::Matrix pre_, act_;        // [rows, F or 2F], [rows, F] c
  MoeSaved moe_;                    // of a pass, where the model has experts
  engine::Matrix logits_;           // [logit_rows, padded V] f32
  engine::Matrix low_rank_;         // [rows, columns of adapters] c
  AdapterBuffers adapter_buffers_;  // where there are served adapters
};

}  // namespace tutti::model
