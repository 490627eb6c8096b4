#include "tutti/model/moe.h"

#include <span>

#include "tutti/base/error.h"

namespace tutti::model {
namespace {

// Boundaries of the row groups of this rank's experts.
engine::Vector groups_of(const MoeSaved& saved) {
  return saved.received ? saved.received : saved.offsets;
}

const CopyBoundaries& boundaries_of(const MoeLayer& layer) {
  const auto found = layer.exchange.host->boundaries.find({layer.number, layer.exchange.in_flight});
  TUTTI_CHECK(found != layer.exchange.host->boundaries.end(),
              "layer {}: copies were not exchanged yet", layer.number);
  return found->second;
}

// The first rows of `matrix`, which hold copies; all rows if the host does not know how many.
engine::Matrix used_rows(const MoeLayer& layer, const MoeSaved& saved,
                         const engine::Matrix& matrix) {
  if (!saved.received || layer.exchange.piece_rows > 0) return matrix;
  return matrix.slice_rows(0, boundaries_of(layer).received.back());
}

// Adds the biases of experts to rows that hold a product.
void add_biases(engine::Stream& stream, const MoeLayer& layer, const MoeSaved& saved,
                engine::Vector bias, engine::Matrix x) {
  if (!bias) return;
  stream.ops().grouped_bias(
      stream,
      {.x = x, .offsets = groups_of(saved), .piece_rows = layer.exchange.piece_rows, .bias = bias});
}

void sum_biases(engine::Stream& stream, const MoeLayer& layer, const MoeSaved& saved,
                engine::Matrix dy, float beta, float scale, engine::Vector d_bias) {
  if (!d_bias) return;
  stream.ops().grouped_column_sum(stream, {.dy = dy,
                                           .offsets = groups_of(saved),
                                           .piece_rows = layer.exchange.piece_rows,
                                           .beta = beta,
                                           .scale = scale,
                                           .d_bias = d_bias});
}

engine::Vector elements(const engine::Matrix& matrix, int64_t rows) {
  TUTTI_CHECK(matrix.ld == matrix.cols, "rows of {} elements, {} apart", matrix.cols, matrix.ld);
  return engine::vector(matrix.data, matrix.dtype, rows * matrix.cols);
}

// Elements sent to each rank in rows of `width`, then elements received from each rank.
std::span<const int64_t> count_elements(const MoeLayer& layer, const CopyBoundaries& copies,
                                        int64_t width) {
  const auto ranks = static_cast<size_t>(layer.exchange.group->size());
  const size_t experts = static_cast<size_t>(layer.config.experts) / ranks;
  std::vector<int64_t>& counts = layer.exchange.host->counts;
  counts.resize(2 * ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    const size_t first = rank * experts;
    counts[rank] = (copies.sent[first + experts] - copies.sent[first]) * width;
    counts[ranks + rank] = (copies.received[first + experts] - copies.received[first]) * width;
  }
  return counts;
}

// Full pieces, one to each rank and one from each.
void exchange_pieces(engine::Stream& stream, const ExpertExchange& exchange, engine::Matrix from,
                     engine::Matrix to) {
  exchange.group->all_to_all(stream, elements(from, from.rows), elements(to, to.rows)).wait(stream);
}

// Dispatch: copies of this rank's tokens to the ranks of their experts.
void dispatch(engine::Stream& stream, const MoeLayer& layer, engine::Matrix to) {
  const ExpertExchange& exchange = layer.exchange;
  if (exchange.piece_rows > 0) {
    exchange_pieces(stream, exchange, exchange.copies, to);
    return;
  }
  const CopyBoundaries& copies = boundaries_of(layer);
  const auto ranks = static_cast<size_t>(exchange.group->size());
  const std::span<const int64_t> counts = count_elements(layer, copies, to.cols);
  exchange.group
      ->all_to_all(stream, elements(exchange.copies, copies.sent.back()),
                   elements(to, copies.received.back()), counts.first(ranks), counts.last(ranks))
      .wait(stream);
}

// Combine: the outputs back to the rows of their copies.
void combine(engine::Stream& stream, const MoeLayer& layer, engine::Matrix from,
             engine::Matrix to) {
  const ExpertExchange& exchange = layer.exchange;
  if (exchange.piece_rows > 0) {
    exchange_pieces(stream, exchange, from, to);
    return;
  }
  const CopyBoundaries& copies = boundaries_of(layer);
  const auto ranks = static_cast<size_t>(exchange.group->size());
  const std::span<const int64_t> counts = count_elements(layer, copies, to.cols);
  exchange.group
      ->all_to_all(stream, elements(from, copies.received.back()), elements(to, copies.sent.back()),
                   counts.last(ranks), counts.first(ranks))
      .wait(stream);
}

// Exchanges the number of copies for each rank's experts.
void exchange_sizes(engine::Stream& stream, const MoeLayer& layer, const MoeSaved& saved) {
  const ExpertExchange& exchange = layer.exchange;
  if (exchange.piece_rows > 0) {  // the boundaries of each piece
    exchange.group->all_to_all(stream, saved.offsets, saved.received).wait(stream);
    return;
  }
  const auto experts = static_cast<size_t>(layer.config.experts);
  CopyBoundaries& copies = exchange.host->boundaries[{layer.number, exchange.in_flight}];
  copies.sent.resize(experts + 1);
  copies.received.resize(experts + 1);
  stream.transfer(copies.sent.data(), saved.offsets.data, saved.offsets.bytes());
  stream.synchronize();
  for (size_t e = 0; e < experts; ++e) copies.received[e + 1] = copies.sent[e + 1] - copies.sent[e];
  stream.transfer(exchange.sizes.data, copies.received.data() + 1, exchange.sizes.bytes());
  const engine::Vector there =
      engine::vector(saved.received.as<int32_t>() + 1, DType::i32, layer.config.experts);
  exchange.group->all_to_all(stream, exchange.sizes, there).wait(stream);
  stream.transfer(copies.received.data() + 1, there.data, there.bytes());
  stream.synchronize();
  copies.received[0] = 0;
  int64_t total = 0;
  for (size_t i = 1; i <= experts; ++i) {
    copies.received[i] = static_cast<int32_t>(total += copies.received[i]);
  }
  stream.transfer(saved.received.data, copies.received.data(), saved.received.bytes());
  if (total <= saved.input.rows) return;
  fail(ErrorKind::unsupported,
       "layer {}: {} token copies for the experts of rank {}, which has memory for {}; raise "
       "parallel.expert_room_percent, set it to 0 (memory for any routing), or set "
       "model.moe.capacity_factor",
       layer.number, total, exchange.group->info().world_rank(), saved.input.rows);
}

// Routes this rank's own rows and gathers the routing of all ranks.
void route(engine::Stream& stream, const MoeLayer& layer, const OwnRows& rows,
           const MoeSaved& saved) {
  const engine::Matrix experts = own_rows(layer.tp, saved.experts);
  const engine::Matrix weights = own_rows(layer.tp, saved.weights);
  const bool given =
      layer.tape != nullptr && layer.tape->give && layer.tape->give(layer.number, rows, experts);
  // The logits become probabilities in place.
  stream.ops().route_forward(stream, {.logits = saved.probabilities,
                                      .bias = layer.selection_bias,
                                      .probabilities = saved.probabilities,
                                      .lse = saved.lse,
                                      .experts = experts,
                                      .weights = weights,
                                      .given = given,
                                      .renormalize = layer.config.renormalize,
                                      .scores = layer.scores,
                                      .groups = layer.groups,
                                      .factor = static_cast<float>(layer.config.weight_factor)});
  if (layer.tape != nullptr && layer.tape->take) {
    layer.tape->take(layer.number, rows, experts, saved.probabilities);
  }
  gather_rows(stream, layer.tp, experts, saved.experts);
  gather_rows(stream, layer.tp, weights, saved.weights);
}

// Assigns a row to every copy. Ranks with parts of a sequence exchange their counts.
void assign_copies(engine::Stream& stream, const MoeLayer& layer, const BatchShape& shape,
                   const MoeSaved& saved) {
  const engine::OpTable& ops = stream.ops();
  engine::AssignRowsArgs args;
  args.experts = saved.experts;
  args.sequence = shape.tokens;
  args.capacity = spec::expert_capacity(layer.config, shape.sequence());
  args.rows = saved.output.rows;
  args.piece_rows = layer.exchange.piece_rows;
  args.counts = saved.counts;
  args.offsets = saved.offsets;
  args.positions = saved.positions;
  const SequenceParts& parts = layer.parts;
  if (parts.group == nullptr) {
    ops.assign_rows(stream, args);
    return;
  }
  const int64_t capacity = args.capacity;
  const int64_t rank = parts.group->rank();
  args.sequence = shape.tokens / 2;
  args.capacity = 0;
  args.rows = saved.experts.rows * saved.experts.cols;
  args.counts = parts.counts.slice_rows(rank * 2 * shape.sequences, 2 * shape.sequences);
  ops.assign_rows(stream, args);
  parts.group
      ->all_gather(stream, elements(args.counts, args.counts.rows),
                   elements(parts.counts, parts.counts.rows))
      .wait(stream);
  ops.merge_counts(stream, {.counts = parts.counts,
                            .blocks = shape.parts,
                            .block = rank,
                            .totals = saved.counts,
                            .before = parts.before});
  if (capacity == 0) return;
  args.capacity = capacity;
  args.rows = saved.output.rows;
  args.before = parts.before;
  ops.assign_rows(stream, args);
}

// The product of every expert with its rows. Where it decodes, each is multiplied as fast as its
// weights are read, unless one has many rows.
void multiply_experts(engine::Stream& stream, const MoeLayer& layer, const MoeSaved& saved,
                      const Linear& linear, engine::Matrix x, engine::Matrix y) {
  const engine::Vector offsets = groups_of(saved);
  const bool here = layer.exchange.group == nullptr;
  bool few = here && linear.decodes;
  for (int64_t e = 0; few && e + 1 < offsets.count; ++e) {
    few = offsets.as<int32_t>()[e + 1] - offsets.as<int32_t>()[e] <= engine::kFewRows;
  }
  if (!few && !linear.packed) {
    stream.ops().grouped_gemm(stream, {.a = x,
                                       .b = linear.weight,
                                       .offsets = offsets,
                                       .piece_rows = layer.exchange.piece_rows,
                                       .transpose_b = true,
                                       .c = y});
    return;
  }
  TUTTI_CHECK(here, "layer {}: packed experts of other ranks", layer.number);
  const int64_t experts = layer.config.experts;
  const int64_t outputs = linear.weight.rows / experts;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t first = offsets.as<int32_t>()[e];
    const int64_t count = offsets.as<int32_t>()[e + 1] - first;
    if (count == 0) continue;
    engine::DecodeGemmArgs args;
    args.a = x.slice_rows(first, count);
    args.c = y.slice_rows(first, count);
    if (linear.packed) {
      args.packed = packed_expert(linear.packed, e);
    } else {
      args.weight = linear.weight.slice_rows(e * outputs, outputs);
    }
    stream.ops().decode_gemm(stream, args);
  }
}

}  // namespace

bool reads_all_rows(const MoeLayer& layer, const MoeSteps& steps) {
  return steps.route || (layer.config.shared_experts > 0 && steps.shared.up);
}

void moe_forward(engine::Stream& stream, const MoeLayer& layer, BatchShape shape, const MoeInput& x,
                 const MoeSaved& saved, engine::Matrix branch, const MoeSteps& steps) {
  const engine::OpTable& ops = stream.ops();
  const bool exchanges = layer.exchange.group != nullptr;
  if (steps.route) {
    linear_forward(stream, layer.router, x.own, saved.probabilities);
    route(stream, layer, x.numbers, saved);
    assign_copies(stream, layer, shape, saved);
    ops.permute(stream, {.x = x.all,
                         .positions = saved.positions,
                         .out = exchanges ? layer.exchange.copies : saved.input});
    if (exchanges) {
      exchange_sizes(stream, layer, saved);
      dispatch(stream, layer, saved.input);
    }
  }
  if (steps.up) {
    multiply_experts(stream, layer, saved, layer.up, saved.input, saved.pre);
    add_biases(stream, layer, saved, layer.up.bias, saved.pre);
  }
  if (steps.activation) {
    ops.activation_forward(stream, {.kind = layer.activation,
                                    .x = used_rows(layer, saved, saved.pre),
                                    .y = used_rows(layer, saved, saved.act)});
  }
  if (steps.down) {
    const engine::Matrix results = exchanges ? layer.exchange.results : saved.output;
    multiply_experts(stream, layer, saved, layer.down, saved.act, results);
    if (tensor_rank(layer.tp) == 0) add_biases(stream, layer, saved, layer.down.bias, results);
    if (exchanges) combine(stream, layer, results, saved.output);
  }
  const bool shares = layer.config.shared_experts > 0;
  if (shares) mlp_forward(stream, layer.shared, x.all, saved.shared, branch, {}, steps.shared);
  if (steps.combine) {
    ops.unpermute(stream, {.rows = saved.output,
                           .positions = saved.positions,
                           .weights = saved.weights,
                           .accumulate = shares,
                           .out = branch});
  }
}

void moe_backward_input(engine::Stream& stream, const MoeLayer& layer, BatchShape shape,
                        const RoutingStep& step, const MoeSaved& saved, engine::Matrix d_branch,
                        const MoeWork& work, engine::Matrix dx) {
  const engine::OpTable& ops = stream.ops();
  const bool exchanges = layer.exchange.group != nullptr;
  ops.permute(stream, {.x = d_branch,
                       .positions = saved.positions,
                       .weights = saved.weights,
                       .out = exchanges ? layer.exchange.copies : work.d_output,
                       .partner = saved.output,
                       .dots = work.d_weights});
  scatter_rows(stream, layer.tp, work.d_weights);
  ops.route_backward(stream, {.probabilities = saved.probabilities,
                              .lse = saved.lse,
                              .experts = own_rows(layer.tp, saved.experts),
                              .weights = own_rows(layer.tp, saved.weights),
                              .d_weights = own_rows(layer.tp, work.d_weights),
                              .counts = saved.counts,
                              .positions = own_rows(layer.tp, saved.positions),
                              .sequence = shape.sequence(),
                              .rows_each = shape.tokens,
                              .first_row = first_own_row(layer.tp, shape.rows()),
                              .balance_scale = layer.balance_loss * step.row_scale *
                                               static_cast<float>(shape.sequence()),
                              .z_scale = layer.z_loss * step.row_scale,
                              .renormalize = layer.config.renormalize,
                              .scores = layer.scores,
                              .factor = static_cast<float>(layer.config.weight_factor),
                              .d_logits = work.d_logits,
                              .beta = step.first ? 0.0F : 1.0F,
                              .load = work.load,
                              .sums = work.sums});
  if (exchanges) dispatch(stream, layer, work.d_output);
  ops.grouped_gemm(stream, {.a = work.d_output,
                            .b = layer.down.weight,
                            .offsets = groups_of(saved),
                            .piece_rows = layer.exchange.piece_rows,
                            .c = work.d_act});
  ops.activation_backward(stream, {.kind = layer.activation,
                                   .x = used_rows(layer, saved, saved.pre),
                                   .dy = used_rows(layer, saved, work.d_act),
                                   .dx = used_rows(layer, saved, work.d_pre)});
  ops.grouped_gemm(stream, {.a = work.d_pre,
                            .b = layer.up.weight,
                            .offsets = groups_of(saved),
                            .piece_rows = layer.exchange.piece_rows,
                            .c = work.d_input});
  if (exchanges) combine(stream, layer, work.d_input, layer.exchange.copies);
  const bool shares = layer.config.shared_experts > 0;
  if (shares) mlp_backward_input(stream, layer.shared, saved.shared, d_branch, work.shared, dx);
  ops.unpermute(stream, {.rows = exchanges ? layer.exchange.copies : work.d_input,
                         .positions = saved.positions,
                         .accumulate = shares,
                         .out = dx});
  // The router's share of the sum, on own rows only.
  ops.gemm(stream,
           {.a = work.d_logits, .b = layer.router.weight, .c = own_rows(layer.tp, dx), .beta = 1});
}

void moe_backward_weight(engine::Stream& stream, const MoeLayer& layer, engine::Matrix x,
                         engine::Matrix all, const MoeSaved& saved, engine::Matrix d_branch,
                         const MoeWork& work, float beta) {
  if (!layer.router.trains()) return;  // with adapters everything here is frozen
  const engine::OpTable& ops = stream.ops();
  ops.grouped_gemm_weight(stream, {.dy = work.d_output,
                                   .x = saved.act,
                                   .offsets = groups_of(saved),
                                   .piece_rows = layer.exchange.piece_rows,
                                   .beta = beta,
                                   .d_weight = layer.down.d_weight});
  ops.grouped_gemm_weight(stream, {.dy = work.d_pre,
                                   .x = saved.input,
                                   .offsets = groups_of(saved),
                                   .piece_rows = layer.exchange.piece_rows,
                                   .beta = beta,
                                   .d_weight = layer.up.d_weight});
  const float share = layer.tp == nullptr ? 1 : 1 / static_cast<float>(layer.tp->size());
  sum_biases(stream, layer, saved, work.d_output, beta, share, layer.down.d_bias);
  sum_biases(stream, layer, saved, work.d_pre, beta, 1, layer.up.d_bias);
  if (layer.config.shared_experts > 0) {
    mlp_backward_weight(stream, layer.shared, all, saved.shared, d_branch, work.shared, beta);
  }
  linear_backward_weight(stream, layer.router, x, work.d_logits, beta);
}

}  // namespace tutti::model
