// What the trainer does for each action of a step's list (spec/schedule/step_list.h), and of an
// evaluation's.
#include <utility>

#include "tutti/base/check.h"
#include "tutti/parallel/range.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train {

void Trainer::handle_actions() {
  using Kind = spec::ActionKind;
  using engine::Stream;
  using spec::Action;
  executor_.listen([this](Stream& /*stream*/, const Action& action) {
    const bool after_step =
        action.kind == spec::ActionKind::evaluate || action.kind == spec::ActionKind::save;
    if (action_listener_ && !evaluating_ && !after_step) action_listener_(action);
  });
  parallel::handle_messages(executor_, *pipeline_);
  executor_.handle(Kind::load,
                   [this](Stream& /*stream*/, const Action& action) { load_(action.micro); });
  for (const Kind kind : {Kind::gather, Kind::gather_backward}) {
    executor_.handle(kind, [this](Stream& stream, const Action& action) {
      weights_->gather(stream, action.part);
    });
  }
  const auto handle = [this](Kind kind, void (Trainer::*handler)(Stream&, const Action&)) {
    executor_.handle(kind, [this, handler](Stream& stream, const Action& action) {
      (this->*handler)(stream, action);
    });
  };
  executor_.handle(Kind::fetch, [this](Stream& /*stream*/, const Action& action) {
    if (action.part == spec::kOptimizerState) return optimizer_->fetch_ahead();
    stage_of(action).fetch(action.part);
  });
  executor_.handle(Kind::offload, [this](Stream& /*stream*/, const Action& action) {
    stage_of(action).offload(action.part);
  });
  handle(Kind::quantize, &Trainer::quantize);
  handle(Kind::forward, &Trainer::forward);
  handle(Kind::backward, &Trainer::backward);
  handle(Kind::weight_gradient, &Trainer::weight_gradient);
  handle(Kind::reduce, &Trainer::reduce);
  handle(Kind::norm, &Trainer::norm);
  handle(Kind::update, &Trainer::update);
}

void Trainer::handle(spec::ActionKind kind, std::function<void()> handler) {
  TUTTI_CHECK(kind == spec::ActionKind::evaluate || kind == spec::ActionKind::save,
              "{} is the trainer's own", spec::action_name(kind));
  executor_.handle(kind,
                   [handler = std::move(handler)](engine::Stream& /*stream*/,
                                                  const spec::Action& /*action*/) { handler(); });
}

void Trainer::run_after(const std::vector<spec::Action>& actions) {
  executor_.check(actions);
  executor_.run(*stream_, actions);
}

void Trainer::run(std::span<const spec::Action> actions, std::function<void(int64_t)> load) {
  load_ = std::move(load);
  evaluating_ = false;
  pipeline_->begin(actions);
  executor_.run(*stream_, actions);
  pipeline_->end(*stream_);
  load_ = {};
}

void Trainer::quantize(engine::Stream& stream, const spec::Action& action) {
  // Weights stay as they are for all micro-batches of an evaluation.
  if (evaluating_ && action.micro > 0) return;
  weights_->need(stream, action.part);
  stage_of(action).narrow_weights().quantize(stream, action.part);
}

void Trainer::forward(engine::Stream& stream, const spec::Action& action) {
  model::Stage& stage = stage_of(action);
  const int64_t micro = action.micro;
  if (action.part == stage.layers().front()) stage.begin(micro, batches_->batch(micro));
  const bool ends = action.part == stage.layers().back();
  weights_->need(stream, action.part);
  const engine::Matrix out =
      ends && !stage.share().last ? pipeline_->output(stream) : engine::Matrix{};
  const bool has_loss = action.part == spec::kHeadLayer;
  if (evaluating_) {
    stage.evaluate(stream, micro, action.part, out);
    if (ends) stage.leave(micro);
  } else {
    stage.forward(stream, micro, action.part, out);
    if (has_loss) {
      reduction_->open(stream, action.part);
      const auto rows = static_cast<double>(recipe_.batch.global * recipe_.batch.sequence);
      stage.loss_forward_backward(stream, micro, static_cast<float>(1 / rows), micro == 0);
    }
  }
  if (!has_loss) return;
  const auto add = [&stream](const engine::Vector& x, double* total) {
    stream.ops().sum(stream, {.x = x, .accumulate = true, .total = total});
  };
  add(stage.row_losses(), scalars_->loss_sum());
  if (teacher_ && !evaluating_) add(stage.row_divergences(), scalars_->divergence_sum());
}

void Trainer::backward(engine::Stream& stream, const spec::Action& action) {
  model::Stage& stage = stage_of(action);
  if (action.part == stage.layers().back()) pipeline_->await_gradient(stream);
  // The head's weights are there since its forward pass.
  if (action.part != spec::kHeadLayer) weights_->need(stream, action.part);
  if (!stage.delays_weights()) reduction_->open(stream, action.part);
  stage.backward(stream, action.micro, action.part, pipeline_->gradient(), action.micro == 0);
}

void Trainer::weight_gradient(engine::Stream& stream, const spec::Action& action) {
  model::Stage& stage = stage_of(action);
  reduction_->open(stream, action.part);
  stage.weight_gradient(stream, action.micro, action.part, pipeline_->gradient(),
                        action.micro == 0);
  if (action.part != stage.last_weight_gradient()) return;
  stage.leave(action.micro);
  if (stage.share().first) pipeline_->drop_gradient();
}

void Trainer::reduce(engine::Stream& stream, const spec::Action& action) {
  if (action.part == spec::kRouterLoads) return sum_routing(stream, ranks_, *memory_);
  if (action.part == spec::kTiedTable) {
    reduction_->finish(stream);
    reduction_->sum_tied(stream);
  } else if (action.part == spec::kTensorCopies) {
    reduction_->finish(stream);
    common_gradients_->sum(stream);
  } else {
    reduction_->reduce(stream, action.part);
  }
}

// The sums of the step over all ranks, what the update makes of them, and what the host reads.
void Trainer::norm(engine::Stream& stream, const spec::Action& /*action*/) {
  reduction_->finish(stream);
  optimizer_->squared_norm(stream, scalars_->squared_parts());
  if (!batches_->ahead()) scalars_->set_inputs(inputs_, step_slot_);
  scalars_->send_inputs(stream, step_slot_);
  scalars_->sum_over_ranks(stream);
  const engine::OpTable& ops = stream.ops();
  ops.prepare_update(stream, {.loss_sum = &scalars_->total()->loss,
                              .divergence_sum = teacher_ ? &scalars_->total()->divergence : nullptr,
                              .divergence_weight = recipe_.distill.weight,
                              .squared_norm = &scalars_->total()->squared_norm,
                              .targets = &scalars_->total()->targets,
                              .inputs = scalars_->inputs(),
                              .clip_norm = recipe_.optimizer.clip_norm,
                              .beta1 = static_cast<float>(recipe_.optimizer.beta1),
                              .beta2 = static_cast<float>(recipe_.optimizer.beta2),
                              .updates = scalars_->updates(),
                              .scalars = scalars_->update(),
                              .outputs = scalars_->outputs()});
  int64_t tensors = 0;
  for (const OwnedGradients& owned : owned_gradients_) {
    ops.find_nonfinite(stream,
                       {.x = owned.x,
                        .ends = parallel::range(scalars_->segment_ends(), tensors, owned.tensors),
                        .first = owned.first,
                        .scalars = scalars_->update(),
                        .found = &scalars_->outputs()->nonfinite});
    tensors += owned.tensors;
  }
  scalars_->fetch_outputs(stream, step_slot_);
  if (routing_) routing_->fetch(stream, step_slot_);
}

void Trainer::update(engine::Stream& stream, const spec::Action& action) {
  if (action.part == spec::kSelectionBias) return move_selection_biases();
  optimizer_->update(stream, action.part, scalars_->update());
}

void Trainer::move_selection_biases() {
  parallel::StateWatch* watch = optimizer_->watch();
  for (const SelectionBias& layer : selection_biases_) {
    if (watch != nullptr) watch->lend(layer.bias, layer.weights);
  }
  update_selection_biases(*stream_, selection_biases_, recipe_.model.moe.router_bias_rate,
                          scalars_->update());
  if (watch != nullptr) stream_->synchronize();
  for (const SelectionBias& layer : selection_biases_) {
    if (watch != nullptr) watch->take_back(layer.bias, layer.weights);
  }
}

}  // namespace tutti::train
