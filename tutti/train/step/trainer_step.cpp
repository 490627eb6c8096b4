// One training step: its passes, what the ranks sum, and the update.
#include <algorithm>
#include <cmath>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/engine/update_scalars.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/profile.h"
#include "tutti/train/step/trainer.h"

namespace tutti::train {
namespace {

// Algorithms are chosen and workspaces grow before a step is recorded.
constexpr int64_t kEagerSteps = 2;
// A step under way has a point of the stream's queue and a graph of its own, by its slot.
static_assert(kStepsUnderWay <= engine::Stream::kPoints);

}  // namespace

// Those of all ranks.
void Trainer::count_targets(double targets) {
  const int64_t rows = recipe_.batch.global * recipe_.batch.sequence;
  step_targets_ = std::llround(targets);
  if (step_targets_ == 0) {
    fail(ErrorKind::usage,
         "every target of a step's {} rows is masked or padding: there is nothing to learn; "
         "use a larger batch.global, or look at the corpus with 'tutti data inspect'",
         rows);
  }
  gradient_factor_ = static_cast<double>(rows) / targets;
}

// On the host, after passes that have enqueued this rank's.
StepSums Trainer::sums_of_ranks(double targets) {
  scalars_->set_inputs({.learning_rate = 0, .rows = 0, .targets = targets}, 0);
  scalars_->send_inputs(*stream_, 0);
  scalars_->sum_over_ranks(*stream_);
  const StepSums sums = scalars_->read(*stream_);
  check_peers();
  return sums;
}

// What a group that has failed leaves in memory of a device is undefined. (Elsewhere who waited for
// its calls knows already.)
void Trainer::check_peers() const {
  if (ranks_.home == nullptr || stream_->memory() != engine::ArenaKind::device) return;
  const std::string failure = ranks_.home->failure();
  if (!failure.empty()) fail(ErrorKind::peer, "{}", failure);
}

double Trainer::gradients(const BatchSource& next) {
  TUTTI_CHECK(!teacher_ || teacher_is_set_, "the teacher has no parameters yet");
  step_targets_ = 0;
  scalars_->clear(*stream_);
  const auto norm = std::find_if(actions_.begin(), actions_.end(), [](const spec::Action& action) {
    return action.kind == spec::ActionKind::norm;
  });
  run({actions_.begin(), norm},
      [this, &next](int64_t micro) { step_targets_ += batches_->put_and_send(next(), micro); });
  optimizer_->forget_fetched();  // there is no update
  reduction_->finish(*stream_);
  optimizer_->squared_norm(*stream_, scalars_->squared_parts());
  const StepSums sums = sums_of_ranks(static_cast<double>(step_targets_));
  count_targets(sums.targets);
  const double cross_entropy = sums.loss / sums.targets;
  if (!teacher_) return cross_entropy;
  loss_parts_ = {cross_entropy, sums.divergence / sums.targets};
  return engine::mixed_loss(cross_entropy, loss_parts_->divergence, recipe_.distill.weight);
}

// In the other steps the host asks how many copies of tokens the ranks of experts send each other,
// or looks at what an update has read and written.
bool Trainer::steps_run_ahead() const {
  const bool enqueues = stream_->memory() == engine::ArenaKind::device || options_.enqueue_steps;
  if (!enqueues || optimizer_->watch() != nullptr) return false;
  const spec::Mesh& mesh = recipe_.parallel;
  if (mesh.ep > 1 && spec::local_sizes(recipe_, spec::tutti_profile()).piece_rows == 0)
    return false;
  // Where groups copy through memory of the host, it waits in each of their calls.
  return ranks_.sums == nullptr || options_.enqueue_steps || !ranks_.sums->stages(*stream_);
}

// Dropout's masks and the words of stochastic rounding to fewer than 16 bits are those of a step's
// own rows: their arguments are not the same each time. What groups of ranks enqueue reaches from
// one step into the next, and is not recorded.
bool Trainer::replays() const {
  return stream_->replays() && ranks_.world == nullptr && !action_listener_ && !routing_is_taped_ &&
         recipe_.model.dropout == 0 && recipe_.lora.dropout == 0 &&
         !recipe_.narrow.stochastic_gradients && begun_steps_ >= kEagerSteps;
}

// The first parameter in forward order on any rank, all of which come here together; `here`: in
// this rank's layout, -1 for none.
std::string Trainer::first_nonfinite(int64_t here) {
  const spec::ParamLayout all = spec::param_layout(spec::param_table(recipe_.model, recipe_.lora));
  int64_t found = -1;
  if (here >= 0) {
    found = &all.find(layout_.params.at(static_cast<size_t>(here)).name) - all.params.data();
  }
  if (ranks_.world != nullptr) {
    const engine::Vector furthest = engine::vector(&found, DType::i64, 1);
    ranks_.world->all_reduce(*stream_, furthest, furthest, comm::Reduce::max).wait(*stream_);
    stream_->synchronize();
  }
  return found < 0 ? "loss" : all.params[static_cast<size_t>(found)].name;
}

void Trainer::begin_step(const BatchSource& next, double learning_rate,
                         std::optional<int64_t> update) {
  TUTTI_CHECK(steps_under_way() < (steps_run_ahead() ? kStepsUnderWay : 1),
              "a step with {} others in flight", steps_under_way());
  TUTTI_CHECK(update.has_value() == (steps_under_way() == 0), "{} steps are under way",
              steps_under_way());
  TUTTI_CHECK(!teacher_ || teacher_is_set_, "the teacher has no parameters yet");
  step_slot_ = begun_steps_ % kStepsUnderWay;
  inputs_ = {.learning_rate = learning_rate,
             .rows = static_cast<double>(recipe_.batch.global * recipe_.batch.sequence),
             .targets = 0};
  const auto load_next = [this, &next](int64_t micro) {
    inputs_.targets += static_cast<double>(batches_->put(next(), micro, step_slot_));
  };
  if (batches_->ahead()) {
    for (const spec::Action& action : actions_) {
      if (action.kind == spec::ActionKind::load) load_next(action.micro);
    }
    scalars_->set_inputs(inputs_, step_slot_);
  }
  if (update && updates_ != *update - 1) {
    updates_ = *update - 1;
    scalars_->send_updates(*stream_, updates_);
  }
  const auto enqueue = [&] {
    scalars_->clear(*stream_);
    if (batches_->ahead()) {
      run(actions_, [this](int64_t micro) { batches_->send(micro, step_slot_); });
    } else {
      run(actions_, load_next);
    }
    optimizer_->check_state(*stream_, scalars_->update());
  };
  if (replays()) {
    stream_->replay(static_cast<int>(step_slot_), enqueue);
  } else {
    enqueue();
  }
  stream_->mark(static_cast<int>(step_slot_));
  ++begun_steps_;
}

StepResult Trainer::finish_step() {
  TUTTI_CHECK(steps_under_way() > 0, "no step is under way");
  const int64_t step_slot = finished_steps_++ % kStepsUnderWay;
  stream_->reach(static_cast<int>(step_slot));
  check_peers();
  const engine::StepOutputs outputs = scalars_->fetched(step_slot);
  count_targets(outputs.targets);
  StepResult result;
  result.loss = outputs.loss;
  result.targets = step_targets_;
  result.gradient_norm = outputs.gradient_norm;
  if (routing_) result.routing = routing_->result(recipe_, ranks_, step_slot);
  if (teacher_) result.parts = {outputs.cross_entropy, outputs.divergence};
  result.applied = outputs.applied != 0;
  if (result.applied) {
    ++updates_;
  } else {
    result.nonfinite_tensor = first_nonfinite(outputs.nonfinite);
  }
  return result;
}

StepResult Trainer::step(const BatchSource& next, double learning_rate, int64_t update) {
  begin_step(next, learning_rate, update);
  return finish_step();
}

void Trainer::exchange_alone() {
  if (spec::by_layer(recipe_.parallel)) return;
  for (const spec::Action& action : actions_) {
    const bool sums = action.kind == spec::ActionKind::reduce &&
                      (action.part >= 0 || action.part == spec::kTiedTable);
    if (sums) executor_.run(*stream_, {&action, 1});
  }
  reduction_->finish(*stream_);
  for (const spec::Action& action : actions_) {
    if (action.kind == spec::ActionKind::gather) executor_.run(*stream_, {&action, 1});
  }
  weights_->wait(*stream_);
}

}  // namespace tutti::train
