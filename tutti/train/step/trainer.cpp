#include "tutti/train/step/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/engine/backend.h"
#include "tutti/model/tensor_parallel.h"
#include "tutti/parallel/range.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/profile.h"
#include "tutti/train/session/tuning_folder.h"
#include "tutti/train/step/device_memory.h"
#include "tutti/train/step/place_weights.h"

namespace tutti::train {
namespace {

// By default ranks of a host take its devices in turn; more ranks than devices share them. 0 where
// there are none to choose from.
int device_of(const engine::Backend& backend, const parallel::Ranks& ranks) {
  const auto devices = static_cast<int>(backend.devices().size());
  if (devices == 0) return 0;
  return ranks.device >= 0 ? ranks.device : ranks.local_rank % devices;
}

std::unique_ptr<engine::Stream> make_stream(const spec::Recipe& recipe,
                                            const parallel::Ranks& ranks) {
  const engine::Backend& backend = engine::find_backend(recipe.device);
  engine::StreamOptions options;
  options.device = device_of(backend, ranks);
  options.threads = recipe.threads;
  options.deterministic = recipe.deterministic;
  options.tuning_folder = tuning_folder();
  return backend.make_stream(options);
}

int64_t device_bytes(const spec::Recipe& recipe, const parallel::Ranks& ranks) {
  const engine::Backend& backend = engine::find_backend(recipe.device);
  const int64_t ranks_here = ranks.home == nullptr ? 1 : ranks.home->local_size();
  return least_device_bytes(device_memory_bytes(recipe, device_of(backend, ranks), ranks_here),
                            ranks.world);
}

}  // namespace

Trainer::Trainer(const spec::Recipe& recipe, const parallel::Ranks& ranks,
                 const TrainerOptions& options)
    : recipe_(recipe),
      options_(options),
      ranks_(ranks),
      layout_(spec::param_layout(
          spec::param_table(recipe.model, recipe.lora,
                            spec::tutti_profile().vocabulary_multiple * recipe.parallel.tp),
          recipe.parallel, ranks.at)) {
  spec::Recipe checked = recipe_;
  if (options_.enqueue_steps) checked.offload = {};
  spec::check_executable(checked, ranks.world == nullptr ? 1 : ranks.world->size());
  stream_ = make_stream(recipe_, ranks);
  const spec::Profile profile = spec::tutti_profile_on(
      recipe_, options_.device_bytes > 0 ? options_.device_bytes : device_bytes(recipe_, ranks));
  memory_ = std::make_unique<model::Memory>(spec::memory_map(recipe_, profile, ranks.at.pp),
                                            stream_->memory(), ranks.home);
  if (recipe_.offload.enabled()) make_copy_queues();
  make_stages();
  make_pipeline();
  reduction_ = parallel::make_gradient_reduction(recipe_, layout_, ranks_, *memory_);
  weights_ = std::make_unique<parallel::ShardedWeights>(recipe_, layout_, ranks_, *memory_);
  optimizer_ =
      std::make_unique<parallel::ShardedAdamw>(recipe_, layout_, ranks_, *memory_, &copy_queues_);
  state_ = std::make_unique<RankState>(recipe_, ranks_.at, layout_, *stream_, *memory_, *weights_,
                                       *optimizer_);
  common_gradients_ =
      std::make_unique<parallel::CommonGradients>(layout_, ranks_, optimizer_->slices());
  selection_biases_ =
      bind_selection_biases(recipe_, ranks_.at, layout_, *memory_, optimizer_->slices());
  if (recipe_.model.moe.experts > 0) {
    routing_ = std::make_unique<FetchedRouting>(*stream_, *memory_);
  }
  make_scalars();
  if (recipe_.distill.enabled()) make_teacher();
  handle_actions();
  actions_ = spec::step_list(recipe_, profile, layout_, ranks_.at);
  evaluation_ = spec::evaluation_list(recipe_, profile, layout_, ranks_.at);
  executor_.check(actions_);
  executor_.check(evaluation_);
}

void Trainer::make_scalars() {
  // Of what this rank owns, each tensor's part where it lies behind the one before it.
  std::vector<int64_t> ends;
  for (const parallel::OwnedSlice& slice : optimizer_->slices()) {
    int64_t begin = 0;  // of the last range in the slice
    int64_t end = -1;
    for (size_t i = 0; i < layout_.params.size(); ++i) {
      const spec::PlacedParam& placed = layout_.params[i];
      if (!placed.param.trainable) break;
      const int64_t from = std::max<int64_t>(placed.element_offset - slice.shard.first, 0);
      const int64_t until = std::min(
          placed.element_offset + placed.shard.count() - slice.shard.first, slice.shard.count);
      if (from >= until) continue;
      const auto number = static_cast<int64_t>(i);
      if (end < 0 || from < end || number != owned_gradients_.back().next()) {
        begin = from;
        owned_gradients_.push_back({{}, number, 0});
      }
      OwnedGradients& owned = owned_gradients_.back();
      owned.x = parallel::range(slice.state.gradient, begin, until - begin);
      ++owned.tensors;
      ends.push_back(until - begin);
      end = until;
    }
  }
  scalars_ = std::make_unique<StepScalars>(*stream_, optimizer_->squared_parts(), ends,
                                           SumRanks{ranks_.sums, counts_rows()});
}

void Trainer::make_copy_queues() {
  const engine::Backend& backend = engine::find_backend(recipe_.device);
  copy_queues_ = {backend.make_copy_queue(*stream_), backend.make_copy_queue(*stream_)};
}

void Trainer::make_stages() {
  const spec::Mesh& mesh = recipe_.parallel;
  const auto slots = std::make_shared<model::ActivationSlots>(recipe_.model, *memory_);
  if (recipe_.offload.activations != 0) {
    activation_offload_ = std::make_unique<model::ActivationOffload>(
        recipe_, ranks_.at.pp, *memory_, *slots, copy_queues_);
  }
  batches_ = std::make_unique<BatchStaging>(recipe_, ranks_.at, *memory_, *stream_,
                                            options_.enqueue_steps);
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    stages_.push_back(std::make_unique<model::Stage>(
        recipe_.model, layout_, *memory_,
        model::BatchShape{recipe_.batch.micro, recipe_.batch.sequence / mesh.cp, mesh.cp},
        recipe_.train.seed, ranks_.layers, model::share_of(recipe_, ranks_.at.pp, chunk), slots,
        mesh));
    stages_.back()->prepare(*stream_);
    if (activation_offload_) stages_.back()->offload_through(*activation_offload_);
  }
}

void Trainer::make_pipeline() {
  const spec::Mesh& mesh = recipe_.parallel;
  std::vector<parallel::Inbox*> chunks;
  for (const auto& stage : stages_) {
    inboxes_.push_back(std::make_unique<parallel::StageInbox>(*stage));
    chunks.push_back(inboxes_.back().get());
  }
  parallel::Boundary boundary = {ranks_.pipeline, ranks_.pipeline_gradients};
  for (int64_t i = 0; i < 2; ++i) {
    const auto index = static_cast<size_t>(i);
    if (mesh.pp == 1) {
      boundary.d_residual[index] = memory_->matrix("workspace", "step", 0, "d_residual");
    } else {
      boundary.send[index] = memory_->matrix("workspace", "boundary", i, "send");
      boundary.d_residual[index] = memory_->matrix("workspace", "boundary", i, "d_residual");
    }
  }
  pipeline_ =
      std::make_unique<parallel::PipelineMessages>(mesh, ranks_.at.pp, std::move(chunks), boundary);
}

// A rank that left with weights on their way would be missed by the others.
Trainer::~Trainer() {
  try {
    weights_->wait(*stream_);
  } catch (const Error&) {
    return;  // another rank failed, which its own calls report
  }
}

void Trainer::make_teacher() {
  const spec::Recipe teacher = spec::teacher_recipe(recipe_);
  teacher_memory_ = std::make_unique<model::Memory>(memory_->part(spec::kTeacherPrefix));
  teacher_ = std::make_unique<model::Stage>(
      teacher.model, spec::param_layout(spec::param_table(teacher.model)), *teacher_memory_,
      last_stage().shape(), recipe_.train.seed);
  teacher_->prepare(*stream_);
  last_stage().distill_from(*teacher_, recipe_.distill);
}

void Trainer::set_teacher(const float* master) {
  TUTTI_CHECK(teacher_ != nullptr, "the recipe has no teacher");
  place_weights(*stream_, *teacher_memory_, master);
  teacher_is_set_ = true;
}

void Trainer::initialize() {
  state_->initialize();
  state_changed();
}

void Trainer::state_changed() {
  optimizer_->state_changed(*stream_);
  weights_->changed(*stream_);
  weights_->wait(*stream_);
  for (const auto& stage : stages_) stage->narrow_weights().quantize_frozen(*stream_);
}

void Trainer::evaluate_batches(const BatchSource& next, int64_t batches) {
  inputs_ = {};
  scalars_->clear(*stream_);
  evaluating_ = true;
  load_ = [this, &next](int64_t micro) {
    inputs_.targets += static_cast<double>(batches_->put_and_send(next(), micro));
  };
  for (int64_t micro = 0; micro < batches; ++micro) {
    for (spec::Action& action : evaluation_) action.micro = micro;
    pipeline_->begin(evaluation_);
    executor_.run(*stream_, evaluation_);
  }
  pipeline_->end(*stream_);
  load_ = {};
  evaluating_ = false;
}

EvaluationResult Trainer::evaluate(const BatchSource& next, int64_t batches) {
  const engine::NamedRange range(*stream_, "evaluation");
  evaluate_batches(next, batches);
  const StepSums sums = sums_of_ranks(inputs_.targets);
  EvaluationResult result;
  result.tokens = std::llround(sums.targets);
  result.loss = sums.loss / static_cast<double>(std::max<int64_t>(result.tokens, 1));
  return result;
}

std::vector<float> Trainer::logits(const BatchView& view) {
  TUTTI_CHECK(recipe_.parallel.pp == 1, "logits of {} pipeline stages", recipe_.parallel.pp);
  evaluate_batches([&view] { return view; }, 1);
  const engine::Matrix own = last_stage().final_output();
  const model::LossLayer& head = last_stage().loss_layer();
  const int64_t ways = model::tensor_ranks(head.tp);
  const int64_t rows = own.rows * ways;
  const engine::Arena gathered("gathered", own.bytes() * ways, stream_->memory());
  const engine::Matrix y = model::gather_rows(
      *stream_, head.tp, own, engine::matrix(gathered.data(), own.dtype, rows, own.cols));
  // Columns of every rank, one rank's rows after another's.
  const int64_t padded = head.head.weight.rows;
  const engine::Arena all("logits", ways * rows * padded * dtype_bytes(DType::f32),
                          stream_->memory());
  const engine::Matrix parts = engine::matrix(all.data(), DType::f32, ways * rows, padded);
  const engine::Matrix mine = model::own_rows(head.tp, parts);
  model::head_logits(*stream_, head, y, mine);
  model::gather_rows(*stream_, head.tp, mine, parts);
  std::vector<float> here(static_cast<size_t>(ways * rows * padded));
  stream_->transfer(here.data(), all.data(), parts.bytes());
  stream_->synchronize();
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rows * head.all_columns));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < head.all_columns; ++column) {
      const int64_t at = (column / padded * rows + row) * padded + column % padded;
      out.push_back(here[static_cast<size_t>(at)]);
    }
  }
  return out;
}

bool Trainer::counts_rows() const {
  return ranks_.at.tp == 0 && ranks_.at.pp == recipe_.parallel.pp - 1;
}

}  // namespace tutti::train
