#include "tutti/model/loss.h"

#include <algorithm>

#include "tutti/model/tensor_parallel.h"

namespace tutti::model {
namespace {

engine::Vector slice(const engine::Vector& v, int64_t first, int64_t count) {
  return engine::vector(static_cast<char*>(v.data) + first * dtype_bytes(v.dtype), v.dtype, count);
}

// View of the gradient in the logits' memory: rows of c at the start of rows of f32, or the same
// rows if the logits are in c, too.
engine::Matrix overlay(const engine::Matrix& logits, DType dtype) {
  return engine::matrix(logits.data, dtype, logits.rows, logits.cols,
                        logits.ld * dtype_bytes(logits.dtype) / dtype_bytes(dtype));
}

// The loss of one chunk, whose rows start at `first`, against targets and teacher.
void distill_chunk(engine::Stream& stream, const engine::CrossEntropyArgs& args,
                   const Distillation& from, int64_t first) {
  const int64_t count = args.logits.rows;
  const engine::Matrix teacher_logits = from.work.logits.slice_rows(0, count);
  linear_forward(stream, from.teacher.head, from.y.slice_rows(first, count), teacher_logits);
  stream.ops().distill_cross_entropy(stream, {.logits = args.logits,
                                              .teacher_logits = teacher_logits,
                                              .vocabulary = args.vocabulary,
                                              .targets = args.targets,
                                              .temperature = from.temperature,
                                              .weight = from.weight,
                                              .gradient_scale = args.gradient_scale,
                                              .loss = args.loss,
                                              .divergence = slice(from.work.rows, first, count),
                                              .d_logits = args.d_logits});
}

// The loss of one chunk whose columns are split over ranks; args.loss and gradients as above.
void shared_chunk(engine::Stream& stream, const LossLayer& layer, const LossWork& work,
                  const engine::CrossEntropyArgs& args) {
  const int64_t rows = args.logits.rows;
  const engine::Vector all = slice(work.statistics, 0, layer.tp->size() * 2 * rows);
  const engine::Vector own = slice(all, layer.tp->rank() * 2 * rows, 2 * rows);
  stream.ops().cross_entropy_shard(stream, {.logits = args.logits,
                                            .vocabulary = layer.vocabulary,
                                            .first_column = layer.first_column,
                                            .all_columns = layer.all_columns,
                                            .targets = args.targets,
                                            .statistics = own});
  layer.tp->all_gather(stream, own, all).wait(stream);
  stream.ops().cross_entropy_merge(stream, {.logits = args.logits,
                                            .vocabulary = layer.vocabulary,
                                            .first_column = layer.first_column,
                                            .targets = args.targets,
                                            .statistics = all,
                                            .gradient_scale = args.gradient_scale,
                                            .loss = args.loss,
                                            .d_logits = args.d_logits,
                                            .softcap = args.softcap});
}

void chunk_loss(engine::Stream& stream, const LossLayer& layer, const LossWork& work,
                const engine::CrossEntropyArgs& args) {
  if (layer.tp != nullptr) {
    shared_chunk(stream, layer, work, args);
  } else {
    stream.ops().cross_entropy(stream, args);
  }
}

}  // namespace

void head_logits(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                 engine::Matrix logits) {
  linear_forward(stream, layer.head, y, logits);
  if (layer.softcap > 0) stream.ops().softcap(stream, {.x = logits, .cap = layer.softcap});
}

void loss_forward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                  engine::Vector targets, const LossWork& work) {
  y = gather_rows(stream, layer.tp, y, work.gathered);
  for (int64_t first = 0; first < y.rows; first += work.logits.rows) {
    const int64_t count = std::min(work.logits.rows, y.rows - first);
    const engine::Matrix logits = work.logits.slice_rows(0, count);
    head_logits(stream, layer, y.slice_rows(first, count), logits);
    chunk_loss(stream, layer, work,
               {.logits = logits,
                .vocabulary = layer.vocabulary,
                .targets = slice(targets, first, count),
                .loss = slice(work.rows, first, count)});
  }
}

void loss_forward_backward(engine::Stream& stream, const LossLayer& layer, engine::Matrix y,
                           engine::Vector targets, float gradient_scale, const LossWork& work,
                           engine::Matrix dy, float beta, const Distillation* distillation) {
  y = gather_rows(stream, layer.tp, y, work.gathered);
  for (int64_t first = 0; first < y.rows; first += work.logits.rows) {
    const int64_t count = std::min(work.logits.rows, y.rows - first);
    const engine::Matrix chunk = y.slice_rows(first, count);
    const engine::Matrix logits = work.logits.slice_rows(0, count);
    const engine::Matrix d_logits = overlay(logits, y.dtype);
    head_logits(stream, layer, chunk, logits);
    const engine::CrossEntropyArgs args = {.logits = logits,
                                           .vocabulary = layer.vocabulary,
                                           .targets = slice(targets, first, count),
                                           .gradient_scale = gradient_scale,
                                           .loss = slice(work.rows, first, count),
                                           .d_logits = d_logits,
                                           .softcap = layer.softcap};
    if (distillation == nullptr) {
      chunk_loss(stream, layer, work, args);
    } else {
      distill_chunk(stream, args, *distillation, first);
    }
    linear_backward_input(stream, layer.head, d_logits, dy.slice_rows(first, count));
    linear_backward_weight(stream, layer.head, chunk, d_logits, first == 0 ? beta : 1);
  }
  scatter_rows(stream, layer.tp, dy);
}

}  // namespace tutti::model
