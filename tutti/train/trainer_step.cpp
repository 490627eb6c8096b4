// One training step: its passes, what the ranks sum, and the update, by the host or enqueued ahead.
#include <cmath>
#include <functional>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/engine/update_scalars.h"
#include "tutti/train/trainer.h"

namespace tutti::train {
namespace {

// Algorithms are chosen and workspaces grow before a step is recorded.
constexpr int64_t kEagerSteps = 2;
// A step under way has a point of the stream's queue and a graph of its own, by its place.
static_assert(kStepsUnderWay <= engine::Stream::kPoints);

}  // namespace

// Forward and backward passes of a step, and the sums of its gradients over ranks; losses and
// squared norm are on their way to the scalars.
void Trainer::run_passes(const std::function<void(int64_t)>& load) {
  const engine::NamedRange range(*stream_, "forward and backward passes");
  scalars_->clear(*stream_);
  parallel::StepHooks hooks;
  hooks.load = load;
  weights_->begin_step(actions_);
  if (action_listener_) hooks.enter = std::cref(action_listener_);
  executor_->run(*stream_, hooks);
  if (layer_gradients_) {
    layer_gradients_->finish(*stream_);
  } else {
    gradient_sync_->finish(*stream_);
  }
  common_gradients_->sum(*stream_);
  optimizer_->squared_norm(*stream_, scalars_->squared_parts());
}

void Trainer::check_targets() const {
  if (step_targets_ > 0) return;
  fail(ErrorKind::usage,
       "every target of a step's {} rows is masked or padding: there is nothing to learn; "
       "use a larger batch.global, or look at the corpus with 'tutti data inspect'",
       recipe_.batch.global * recipe_.batch.sequence);
}

double Trainer::gradients(const BatchSource& next) {
  const int64_t rows = recipe_.batch.global * recipe_.batch.sequence;
  TUTTI_CHECK(!teacher_ || teacher_is_set_, "the teacher has no parameters yet");
  step_targets_ = 0;
  run_passes([this, &next](int64_t micro) {
    load(next(), micro);
    send_batch(micro);
    step_targets_ += loaded_targets_[static_cast<size_t>(micro) % loaded_.size()];
  });
  const StepScalars::Sums sums = scalars_->read(*stream_);
  loss_sum_ = sums.loss;
  divergence_sum_ = sums.divergence;
  squared_norm_ = sums.squared_norm;
  auto targets = static_cast<double>(step_targets_);
  if (!counts_rows()) targets = loss_sum_ = divergence_sum_ = 0;
  parallel::sum_over_world(ranks_, *stream_,
                           {&loss_sum_, &divergence_sum_, &targets, &squared_norm_});
  step_targets_ = std::llround(targets);
  check_targets();
  gradient_factor_ = static_cast<double>(rows) / static_cast<double>(step_targets_);
  const double cross_entropy = loss_sum_ / static_cast<double>(step_targets_);
  if (!teacher_) return cross_entropy;
  loss_parts_ = {cross_entropy, divergence_sum_ / static_cast<double>(step_targets_)};
  const double weight = recipe_.distill.weight;
  return (1 - weight) * loss_parts_->cross_entropy + weight * loss_parts_->divergence;
}

// What the host does in the other steps between two micro-batches, or must know before the update.
bool Trainer::steps_run_ahead() const {
  const bool enqueues = stream_->memory() == engine::ArenaKind::device || options_.enqueue_steps;
  return enqueues && ranks_.world == nullptr && !teacher_ && recipe_.model.moe.experts == 0;
}

// Dropout's masks and the words of stochastic rounding to fewer than 16 bits are those of a step's
// own rows: their arguments are not the same each time.
bool Trainer::replays() const {
  return stream_->replays() && !action_listener_ && recipe_.model.dropout == 0 &&
         recipe_.lora.dropout == 0 && !recipe_.narrow.stochastic_gradients &&
         begun_steps_ >= kEagerSteps;
}

void Trainer::enqueue_step(const BatchSource& next, double learning_rate,
                           std::optional<int64_t> update) {
  TUTTI_CHECK(steps_under_way() < kStepsUnderWay, "a step beside {} others", steps_under_way());
  TUTTI_CHECK(update.has_value() == (steps_under_way() == 0), "{} steps are under way",
              steps_under_way());
  const auto rows = static_cast<double>(recipe_.batch.global * recipe_.batch.sequence);
  const int64_t micro_batches = recipe_.batch.global / recipe_.batch.micro;
  const int64_t place = begun_steps_ % kStepsUnderWay;
  step_targets_ = 0;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    load(next(), micro, place);
    step_targets_ += loaded_targets_[static_cast<size_t>(micro) % loaded_.size()];
  }
  check_targets();
  gradient_factor_ = rows / static_cast<double>(step_targets_);
  if (update && updates_ != *update - 1) {
    updates_ = *update - 1;
    scalars_->send_updates(*stream_, updates_);
  }
  scalars_->set_inputs(
      {.learning_rate = learning_rate, .rows = rows, .targets = static_cast<double>(step_targets_)},
      place);
  const auto enqueue = [this, place] {
    scalars_->send_inputs(*stream_, place);
    optimizer_->fetch_ahead();
    run_passes([this, place](int64_t micro) { send_batch(micro, place); });
    enqueue_update();
    scalars_->fetch_outputs(*stream_, place);
  };
  if (replays()) {
    stream_->replay(static_cast<int>(place), enqueue);
  } else {
    enqueue();
  }
  stream_->mark(static_cast<int>(place));
  under_way_.at(static_cast<size_t>(place)).targets = step_targets_;
}

// From the sums on the device to new weights.
void Trainer::enqueue_update() {
  const engine::NamedRange range(*stream_, "update");
  const engine::OpTable& ops = stream_->ops();
  ops.prepare_update(*stream_, {.loss_sum = scalars_->loss_sum(),
                                .squared_norm = scalars_->squared_parts(),
                                .inputs = scalars_->inputs(),
                                .clip_norm = recipe_.optimizer.clip_norm,
                                .beta1 = static_cast<float>(recipe_.optimizer.beta1),
                                .beta2 = static_cast<float>(recipe_.optimizer.beta2),
                                .updates = scalars_->updates(),
                                .scalars = scalars_->update(),
                                .outputs = scalars_->outputs()});
  ops.find_nonfinite(*stream_, {.x = engine::vector(memory_->arena("gradients").data(), DType::f32,
                                                    layout_.trainable_elements),
                                .ends = scalars_->segment_ends(),
                                .scalars = scalars_->update(),
                                .found = &scalars_->outputs()->nonfinite});
  if (action_listener_) action_listener_({spec::ActionKind::update});
  optimizer_->update(*stream_, scalars_->update());
  weights_->updated(*stream_);
}

void Trainer::begin_step(const BatchSource& next, double learning_rate,
                         std::optional<int64_t> update) {
  if (steps_run_ahead()) {
    enqueue_step(next, learning_rate, update);
  } else {
    TUTTI_CHECK(steps_under_way() == 0 && update, "a step that is to run ahead, where none does");
    under_way_.at(static_cast<size_t>(begun_steps_ % kStepsUnderWay)).result =
        step_here(next, learning_rate, *update);
  }
  ++begun_steps_;
}

StepResult Trainer::finish_step() {
  TUTTI_CHECK(steps_under_way() > 0, "no step is under way");
  const int64_t place = finished_steps_++ % kStepsUnderWay;
  StepUnderWay& step = under_way_.at(static_cast<size_t>(place));
  if (!steps_run_ahead()) return std::move(step.result);
  stream_->reach(static_cast<int>(place));
  const engine::StepOutputs outputs = scalars_->fetched(place);
  StepResult result;
  result.loss = outputs.loss;
  result.targets = step.targets;
  result.gradient_norm = outputs.gradient_norm;
  result.applied = outputs.applied != 0;
  if (result.applied) {
    ++updates_;
  } else {
    result.nonfinite_tensor = outputs.nonfinite < 0
                                  ? "loss"
                                  : layout_.params.at(static_cast<size_t>(outputs.nonfinite)).name;
  }
  return result;
}

StepResult Trainer::step(const BatchSource& next, double learning_rate, int64_t update) {
  begin_step(next, learning_rate, update);
  return finish_step();
}

StepResult Trainer::step_here(const BatchSource& next, double learning_rate, int64_t update) {
  StepResult result;
  // Selection biases move before the update, in the masters.
  if (selection_biases_.empty()) optimizer_->fetch_ahead();
  result.loss = gradients(next);
  result.targets = step_targets_;
  result.parts = loss_parts_;
  if (recipe_.model.moe.experts > 0) {
    sum_routing(*stream_, ranks_, *memory_);
    result.routing = routing_of_step(*stream_, recipe_, *memory_);
    join_stages(*stream_, ranks_, *result.routing);
  }
  result.gradient_norm = gradient_factor_ * std::sqrt(squared_norm_);
  if (!std::isfinite(result.gradient_norm) || !std::isfinite(result.loss)) {
    optimizer_->forget_fetched();
    result.nonfinite_tensor = first_nonfinite_gradient();
    return result;
  }
  if (action_listener_) action_listener_({spec::ActionKind::update});
  const double clip = engine::clip_factor(result.gradient_norm, recipe_.optimizer.clip_norm);
  move_selection_biases();
  optimizer_->update(*stream_, learning_rate, clip * gradient_factor_, update,
                     [this](const spec::ShardSlice& slice) { weights_->updated(*stream_, slice); });
  result.applied = true;
  return result;
}

void Trainer::move_selection_biases() {
  parallel::StateWatch* watch = optimizer_->watch();
  for (const SelectionBias& layer : selection_biases_) {
    if (watch != nullptr) watch->lend(layer.bias, layer.weights);
  }
  update_selection_biases(*stream_, selection_biases_, recipe_.model.moe.router_bias_rate);
  if (watch != nullptr) stream_->synchronize();
  for (const SelectionBias& layer : selection_biases_) {
    if (watch != nullptr) watch->take_back(layer.bias, layer.weights);
  }
}

void Trainer::exchange_alone() {
  if (layer_gradients_) return;
  gradient_sync_->finish(*stream_);
  weights_->updated(*stream_);
  weights_->wait(*stream_);
}

}  // namespace tutti::train
