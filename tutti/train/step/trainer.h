// One rank's training state and its step: arenas, parameters, optimizer. No files, no clock, no
// events: the session (train/session/session.h) adds those around it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/engine/copy_queue.h"
#include "tutti/engine/stream.h"
#include "tutti/model/memory.h"
#include "tutti/model/stage.h"
#include "tutti/parallel/common_gradients.h"
#include "tutti/parallel/execute.h"
#include "tutti/parallel/gradient_reduction.h"
#include "tutti/parallel/pipeline_messages.h"
#include "tutti/parallel/ranks.h"
#include "tutti/parallel/sharded_adamw.h"
#include "tutti/parallel/sharded_weights.h"
#include "tutti/parallel/stage_inbox.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/spec/schedule/schedule.h"
#include "tutti/spec/schedule/step_list.h"
#include "tutti/telemetry/events.h"
#include "tutti/train/step/batch_staging.h"
#include "tutti/train/step/micro_batch.h"
#include "tutti/train/step/rank_state.h"
#include "tutti/train/step/routing.h"
#include "tutti/train/step/step_scalars.h"

namespace tutti::train {

struct StepResult {
  // Mean over the step's targets that are not ignored, without the routers' losses: what is
  // optimised, with a teacher the mixture of cross-entropy and divergence.
  double loss = 0;
  int64_t targets = 0;           // how many those are
  double gradient_norm = 0;      // before clipping
  bool applied = false;          // false: non-finite, parameters left as they were
  std::string nonfinite_tensor;  // first parameter with a non-finite gradient, when not applied
  std::optional<telemetry::Routing> routing;  // of a model with experts
  std::optional<telemetry::LossParts> parts;  // with a teacher
};

struct EvaluationResult {
  double loss = 0;     // mean over targets that are not ignored
  int64_t tokens = 0;  // how many those are
};

struct TrainerOptions {
  // Steps are enqueued and memory is offloaded as on a device, also where the host could read and
  // write what they work on: for tests on machines without one.
  bool enqueue_steps = false;
  // Memory of the accelerator to plan for, instead of all that it has; 0: that.
  int64_t device_bytes = 0;
};

class Trainer {
 public:
  // Allocates everything. The recipe must be executable here (spec::check_executable), `ranks` of
  // its mesh. With several ranks all functions but state() are collective: every rank calls them in
  // the same order.
  explicit Trainer(const spec::Recipe& recipe, const parallel::Ranks& ranks = {},
                   const TrainerOptions& options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Parameters from the seed, moments zero: state().initialize() and state_changed().
  void initialize();
  RankState& state() { return *state_; }
  const RankState& state() const { return *state_; }
  // The parameters of the teacher, flat f32 in the layout of its model; before the first step of a
  // recipe with one.
  void set_teacher(const float* master);
  // To be called after parameters or state tensors were written through state() (resume, import).
  void state_changed();

  // A BatchSource gives whole micro-batches: the same to every rank of one dp coordinate. Each
  // takes the part of its other coordinates.
  //
  // One optimizer step over the recipe's accumulation of micro-batches. Loss and gradient are means
  // over the targets of the whole step that are not ignored, each counting the same whichever
  // micro-batch it is in. `update` is the step's number among applied updates, 1 for the first
  // (bias correction). Throws usage when every target of the step is ignored, on all ranks.
  StepResult step(const BatchSource& next, double learning_rate, int64_t update);

  // The same in two parts. Where steps_run_ahead(), begin_step() only enqueues: the host neither
  // reads nor waits in it, but for messages in a pipeline, and a second step may begin before the
  // result of the first is taken, with its `update` left out: one more than the first makes it.
  // Elsewhere finish_step() follows each. Results come in the order of the steps; nothing else is
  // asked of the trainer while one is under way.
  bool steps_run_ahead() const;
  void begin_step(const BatchSource& next, double learning_rate, std::optional<int64_t> update);
  StepResult finish_step();
  int64_t steps_under_way() const { return begun_steps_ - finished_steps_; }

  // Forward and backward of one step without the update: the mean loss. Gradients stay in the
  // arena, and are means once multiplied by gradient_factor(): all rows of a step over its targets
  // that are not ignored, 1 when none is. (Backward runs before the targets of later micro-batches
  // are known.) They are those of the loss plus the weighted losses of the routers, which the
  // factor multiplies too: where targets are masked, routers count as much more.
  double gradients(const BatchSource& next);
  double gradient_factor() const { return gradient_factor_; }
  // The parts of that loss, with a teacher.
  const std::optional<telemetry::LossParts>& loss_parts() const { return loss_parts_; }

  // Executes what the recipe's schedule has after a step (spec::actions_after), by handlers of the
  // caller: `handle` sets that of evaluate or save, once.
  void handle(spec::ActionKind kind, std::function<void()> handler);
  void run_after(const std::vector<spec::Action>& actions);

  // Is called with each action of a step before it is done, on the thread that does it.
  void on_action(std::function<void(const spec::Action& action)> listener) {
    action_listener_ = std::move(listener);
  }

  // What replicas send each other in a step, without a step: the sum of gradients and the gathering
  // of weights, for measurements. With ZeRO 0 and 1; with more, layers exchange as they compute,
  // and this does nothing. Gradients are lost.
  void exchange_alone();

  // Mean loss over `batches` micro-batches.
  EvaluationResult evaluate(const BatchSource& next, int64_t batches);

  // Logits [N, V] f32 of one micro-batch, row-major without padding (tests and tools). Every rank
  // has all of them; of one pipeline stage.
  std::vector<float> logits(const BatchView& batch);

  // For tests: what routers choose is given to the tape, or taken from it.
  void set_routing_tape(model::RoutingTape* tape) {
    routing_is_taped_ = tape != nullptr;
    for (const auto& stage : stages_) stage->set_routing_tape(tape);
  }

  const spec::Recipe& recipe() const { return recipe_; }
  const spec::ParamLayout& layout() const { return layout_; }
  const model::Memory& memory() const { return *memory_; }
  // Null: the recipe does not ask for it.
  const model::ActivationOffload* activation_offload() const { return activation_offload_.get(); }
  engine::Stream& stream() { return *stream_; }

 private:
  void count_targets(double targets);
  // Of tensors with consecutive numbers in layout_.params, what this rank owns of their gradients.
  struct OwnedGradients {
    engine::Vector x;
    int64_t first = 0;
    int64_t tensors = 0;  // one segment of x each
    int64_t next() const { return first + tensors; }
  };
  StepSums sums_of_ranks(double targets);
  void check_peers() const;
  bool replays() const;
  void make_stages();
  void make_pipeline();
  void make_copy_queues();
  void make_scalars();
  void make_teacher();
  void evaluate_batches(const BatchSource& next, int64_t batches);

  // trainer_actions.cpp. `load` brings a micro-batch to where the stages find it.
  void handle_actions();
  void run(std::span<const spec::Action> actions, std::function<void(int64_t micro)> load);
  void quantize(engine::Stream& stream, const spec::Action& action);
  void forward(engine::Stream& stream, const spec::Action& action);
  void backward(engine::Stream& stream, const spec::Action& action);
  void weight_gradient(engine::Stream& stream, const spec::Action& action);
  void reduce(engine::Stream& stream, const spec::Action& action);
  void norm(engine::Stream& stream, const spec::Action& action);
  void update(engine::Stream& stream, const spec::Action& action);
  void move_selection_biases();
  model::Stage& stage_of(const spec::Action& action) const {
    return *stages_[static_cast<size_t>(action.chunk)];
  }
  model::Stage& last_stage() const { return *stages_.back(); }
  std::string first_nonfinite(int64_t here);
  bool counts_rows() const;  // this rank reports the losses of its rows
  spec::Recipe recipe_;
  TrainerOptions options_;
  parallel::Ranks ranks_;
  spec::ParamLayout layout_;
  std::function<void(const spec::Action& action)> action_listener_;
  std::unique_ptr<engine::Stream> stream_;  // outlives what works on its memory
  std::unique_ptr<model::Memory> memory_;
  engine::CopyQueues copy_queues_;  // where the recipe offloads
  std::unique_ptr<model::ActivationOffload> activation_offload_;
  std::vector<std::unique_ptr<model::Stage>> stages_;  // the virtual stages of this rank
  std::unique_ptr<BatchStaging> batches_;
  std::vector<std::unique_ptr<parallel::StageInbox>> inboxes_;  // of the stages
  std::unique_ptr<parallel::PipelineMessages> pipeline_;
  parallel::Executor executor_;
  std::vector<spec::Action> actions_;     // of one step
  std::vector<spec::Action> evaluation_;  // of one micro-batch
  std::function<void(int64_t micro)> load_;
  bool evaluating_ = false;
  std::unique_ptr<model::Memory> teacher_memory_;  // part of memory_
  std::unique_ptr<model::Stage> teacher_;
  bool teacher_is_set_ = false;
  bool routing_is_taped_ = false;
  std::unique_ptr<parallel::GradientReduction> reduction_;
  std::unique_ptr<parallel::ShardedWeights> weights_;
  std::unique_ptr<parallel::ShardedAdamw> optimizer_;
  std::unique_ptr<RankState> state_;
  std::unique_ptr<parallel::CommonGradients> common_gradients_;
  std::vector<SelectionBias> selection_biases_;
  std::unique_ptr<FetchedRouting> routing_;  // of a model with experts
  std::unique_ptr<StepScalars> scalars_;
  std::vector<OwnedGradients> owned_gradients_;  // scalars_->segment_ends() in this order
  int64_t step_slot_ = 0;           // of the step that began last, among those under way
  engine::StepInputs inputs_ = {};  // of it, or of an evaluation
  int64_t begun_steps_ = 0;
  int64_t finished_steps_ = 0;
  int64_t updates_ = -1;      // applied so far, as the stream's memory says; -1: not known here
  int64_t step_targets_ = 0;  // of all ranks
  double gradient_factor_ = 1;
  std::optional<telemetry::LossParts> loss_parts_;
};

}  // namespace tutti::train
