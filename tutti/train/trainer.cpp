#include "tutti/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/model/tensor_parallel.h"
#include "tutti/spec/memory.h"
#include "tutti/spec/profile.h"
#include "tutti/spec/zero_layers.h"
#include "tutti/train/initialize.h"
#include "tutti/train/place_weights.h"

namespace tutti::train {
namespace {

// Targets that are not ignored.
int64_t count_targets(const model::MicroBatch& batch) {
  const int32_t* targets = batch.targets.as<int32_t>();
  return std::count_if(targets, targets + batch.targets.count,
                       [](int32_t target) { return target >= 0; });
}

double sum_of(const engine::Vector& rows) {
  const float* values = rows.as<float>();
  double sum = 0;
  for (int64_t i = 0; i < rows.count; ++i) sum += static_cast<double>(values[i]);
  return sum;
}

}  // namespace

Trainer::Trainer(const spec::Recipe& recipe, const parallel::Ranks& ranks)
    : recipe_(recipe),
      ranks_(ranks),
      layout_(spec::param_layout(
          spec::param_table(recipe.model, recipe.lora,
                            spec::tutti_profile().vocabulary_multiple * recipe.parallel.tp),
          recipe.parallel, ranks.at)) {
  spec::check_executable(recipe_, ranks.world == nullptr ? 1 : ranks.world->size());
  memory_ = std::make_unique<model::Memory>(
      spec::memory_map(recipe_, spec::tutti_profile(), ranks.at.pp));
  stream_ = engine::make_cpu_stream(recipe_.threads);
  make_stages();
  if (spec::by_layer(recipe_.parallel)) {
    layer_gradients_ = std::make_unique<parallel::LayerGradients>(
        layout_, recipe_.parallel, ranks_, *memory_,
        spec::tied_copy(recipe_, {.pp = recipe_.parallel.pp - 1}));
  } else {
    const engine::Vector gradients =
        engine::vector(memory_->arena("gradients").data(), DType::f32, layout_.trainable_elements);
    gradient_sync_ = std::make_unique<parallel::GradientSync>(layout_, recipe_.parallel, ranks_,
                                                              gradients, tied_gradient(gradients));
  }
  weights_ = std::make_unique<parallel::ShardedWeights>(recipe_, layout_, ranks_, *memory_);
  set_needs();
  optimizer_ = std::make_unique<parallel::ShardedAdamw>(recipe_, layout_, ranks_, *memory_);
  common_gradients_ =
      std::make_unique<parallel::CommonGradients>(layout_, ranks_, optimizer_->slices());
  selection_biases_ =
      bind_selection_biases(recipe_, ranks_.at, layout_, *memory_, optimizer_->slices());
  if (recipe_.distill.enabled()) make_teacher();
}

void Trainer::make_stages() {
  const spec::Mesh& mesh = recipe_.parallel;
  const spec::Schedule schedule = spec::make_schedule(recipe_);
  const auto rows = static_cast<double>(recipe_.batch.global * recipe_.batch.sequence);
  const auto slots = std::make_shared<model::ActivationSlots>(recipe_.model, *memory_);
  loaded_.resize(static_cast<size_t>(memory_->repeats("batch", "batch")));
  std::vector<parallel::Passes*> chunks;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    stages_.push_back(std::make_unique<model::Stage>(
        recipe_.model, layout_, *memory_,
        model::BatchShape{recipe_.batch.micro, recipe_.batch.sequence / mesh.cp, mesh.cp},
        recipe_.train.seed, ranks_.layers, model::share_of(recipe_, ranks_.at.pp, chunk), slots,
        mesh));
    stages_.back()->prepare();
    parallel::StageCalls calls;
    calls.gradient_scale = static_cast<float>(1 / rows);
    calls.micro_batches = schedule.micro_batches;
    calls.loss_done = [this](const model::Stage& stage) {
      loss_sum_ += sum_of(stage.row_losses());
      if (teacher_) divergence_sum_ += sum_of(stage.row_divergences());
    };
    calls.every_layer = spec::by_layer(mesh);
    calls.layer_done = [this](int64_t layer) {
      if (layer_gradients_) {
        layer_gradients_->layer_done(*stream_, layer);
      } else {
        gradient_sync_->layer_done(*stream_, layer);
      }
    };
    passes_.push_back(
        std::make_unique<parallel::StagePasses>(*stages_.back(), loaded_, std::move(calls)));
    chunks.push_back(passes_.back().get());
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
  // Every step has the same passes; evaluation and saving are decided by the session.
  actions_ = spec::step_actions(schedule, ranks_.at.pp, 1);
  executor_ = std::make_unique<parallel::Executor>(mesh, ranks_.at.pp, actions_, std::move(chunks),
                                                   boundary);
}

engine::Vector Trainer::tied_gradient(const engine::Vector& gradients) const {
  const spec::Coordinates last = {.pp = recipe_.parallel.pp - 1};
  const std::string name = spec::tied_copy(recipe_, last);
  if (name.empty() || ranks_.pipeline_ends == nullptr) return {};
  const spec::PlacedParam& placed = layout_.find(name);
  return engine::vector(gradients.as<float>() + placed.element_offset, DType::f32,
                        placed.shard.count());
}

void Trainer::set_needs() {
  if (ranks_.world == nullptr) return;
  model::LayerNeeds needs;
  needs.weights = [this](engine::Stream& stream, int64_t layer) { weights_->need(stream, layer); };
  if (layer_gradients_) {
    needs.gradients = [this](engine::Stream& stream, int64_t layer) {
      layer_gradients_->need(stream, layer);
    };
  }
  for (const auto& stage : stages_) stage->set_needs(needs);
}

// A rank that left with weights on their way would be missed by the others.
Trainer::~Trainer() {
  try {
    weights_->wait(*stream_);
  } catch (const Error&) {
    return;  // another rank failed, which its own calls have told or will tell
  }
}

void Trainer::make_teacher() {
  const spec::Recipe teacher = spec::teacher_recipe(recipe_);
  teacher_memory_ = std::make_unique<model::Memory>(memory_->part(spec::kTeacherPrefix));
  teacher_ = std::make_unique<model::Stage>(
      teacher.model, spec::param_layout(spec::param_table(teacher.model)), *teacher_memory_,
      last_stage().shape(), recipe_.train.seed);
  teacher_->prepare();
  last_stage().distill_from(*teacher_, recipe_.distill);
}

void Trainer::set_teacher(const float* master) {
  TUTTI_CHECK(teacher_ != nullptr, "the recipe has no teacher");
  place_weights(*stream_, *teacher_memory_, master);
  teacher_is_set_ = true;
}

void Trainer::initialize() {
  std::vector<float> values;
  for (const spec::PlacedParam& placed : layout_.params) {
    if (placed.param.trainable) continue;
    values.resize(static_cast<size_t>(placed.param.padded_count()));
    initialize_parameter({placed.name, placed.param, 0, spec::whole_param(placed.param)},
                         recipe_.train.seed, values.data());
    set_parameter(placed, values.data());
  }
  initialize_trainable();
}

void Trainer::initialize_trainable() {
  for (const parallel::OwnedSlice& slice : optimizer_->slices()) {
    for (const engine::Vector* array :
         {&slice.state.master, &slice.state.moment1, &slice.state.moment2}) {
      std::memset(array->data, 0, static_cast<size_t>(array->bytes()));
    }
  }
  std::vector<float> local;
  for (const spec::PlacedParam& placed : layout_.params) {
    if (!placed.param.trainable) break;
    local.resize(static_cast<size_t>(placed.shard.count()));
    initialize_parameter(placed, recipe_.train.seed, local.data());
    write_master(placed, local.data());
  }
  state_changed();
}

void Trainer::write_master(const spec::PlacedParam& placed, const float* local) {
  const int64_t end = placed.element_offset + placed.shard.count();
  for (const parallel::OwnedSlice& slice : optimizer_->slices()) {
    const int64_t from = std::max(placed.element_offset, slice.place.first);
    const int64_t until = std::min(end, slice.place.first + slice.place.count);
    if (from >= until) continue;
    std::copy_n(local + (from - placed.element_offset), until - from,
                slice.state.master.as<float>() + (from - slice.place.first));
  }
}

void Trainer::set_parameter(const spec::PlacedParam& placed, const float* values) {
  std::vector<float> local(static_cast<size_t>(placed.shard.count()), 0.0F);
  spec::visit_runs(placed.param, placed.shard, [&](const spec::ShardRun& run) {
    std::copy_n(values + run.global_first, run.count, local.data() + run.local_first);
  });
  if (placed.param.trainable) {
    write_master(placed, local.data());
    return;
  }
  weights_->write(*stream_, placed.element_offset, local.data(),
                  static_cast<int64_t>(local.size()));
}

void Trainer::state_changed() {
  optimizer_->masters_changed(*stream_);
  weights_->updated(*stream_);
  weights_->wait(*stream_);
}

void Trainer::load(const BatchView& view, int64_t micro) {
  const int64_t slot = micro % static_cast<int64_t>(loaded_.size());
  model::MicroBatch& batch = loaded_[static_cast<size_t>(slot)];
  batch = load_micro_batch(*memory_, slot, last_stage().shape(), view, ranks_.at.cp);
  batch.row_scale = 1 / static_cast<float>(recipe_.batch.global * recipe_.batch.sequence);
}

int64_t Trainer::loaded_targets(int64_t micro) const {
  return count_targets(loaded_[static_cast<size_t>(micro) % loaded_.size()]);
}

double Trainer::gradients(const BatchSource& next) {
  const int64_t rows = recipe_.batch.global * recipe_.batch.sequence;
  TUTTI_CHECK(!teacher_ || teacher_is_set_, "the teacher has no parameters yet");
  step_targets_ = 0;
  loss_sum_ = divergence_sum_ = 0;
  parallel::StepHooks hooks;
  hooks.load = [this, &next](int64_t micro) {
    load(next(), micro);
    step_targets_ += loaded_targets(micro);
  };
  weights_->begin_step(actions_);
  if (action_listener_) hooks.enter = std::cref(action_listener_);
  executor_->run(*stream_, hooks);
  if (layer_gradients_) {
    layer_gradients_->finish(*stream_);
  } else {
    gradient_sync_->finish(*stream_);
  }
  common_gradients_->sum(*stream_);
  squared_norm_ = optimizer_->squared_norm(*stream_);
  auto targets = static_cast<double>(step_targets_);
  if (!counts_rows()) targets = loss_sum_ = divergence_sum_ = 0;
  parallel::sum_over_world(ranks_, *stream_,
                           {&loss_sum_, &divergence_sum_, &targets, &squared_norm_});
  step_targets_ = std::llround(targets);
  if (step_targets_ == 0) {
    fail(ErrorKind::usage,
         "every target of a step's {} rows is masked or padding: there is nothing to learn; "
         "use a larger batch.global, or look at the corpus with 'tutti data inspect'",
         rows);
  }
  gradient_factor_ = static_cast<double>(rows) / static_cast<double>(step_targets_);
  const double cross_entropy = loss_sum_ / static_cast<double>(step_targets_);
  if (!teacher_) return cross_entropy;
  loss_parts_ = {cross_entropy, divergence_sum_ / static_cast<double>(step_targets_)};
  const double weight = recipe_.distill.weight;
  return (1 - weight) * loss_parts_->cross_entropy + weight * loss_parts_->divergence;
}

StepResult Trainer::step(const BatchSource& next, double learning_rate, int64_t update) {
  StepResult result;
  result.loss = gradients(next);
  result.targets = step_targets_;
  result.parts = loss_parts_;
  if (recipe_.model.moe.experts > 0) {
    sum_routing(*stream_, ranks_, *memory_);
    result.routing = routing_of_step(recipe_, *memory_);
    join_stages(*stream_, ranks_, *result.routing);
  }
  result.gradient_norm = gradient_factor_ * std::sqrt(squared_norm_);
  if (!std::isfinite(result.gradient_norm) || !std::isfinite(result.loss)) {
    result.nonfinite_tensor = first_nonfinite_gradient();
    return result;
  }
  if (action_listener_) action_listener_({spec::ActionKind::update});
  const double clip = optim::clip_factor(result.gradient_norm, recipe_.optimizer.clip_norm);
  update_selection_biases(*stream_, selection_biases_, recipe_.model.moe.router_bias_rate);
  optimizer_->update(*stream_, learning_rate, clip * gradient_factor_, update);
  weights_->updated(*stream_);
  result.applied = true;
  return result;
}

// The first one in forward order on any rank; all of them come here together.
std::string Trainer::first_nonfinite_gradient() {
  const spec::ParamLayout all = spec::param_layout(spec::param_table(recipe_.model, recipe_.lora));
  int64_t found = -1;  // layouts begin with what is computed last
  for (const StateTensor& tensor : gradient_tensors()) {
    const float* begin = static_cast<const float*>(tensor.data);
    const int64_t count =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
    if (std::all_of(begin, begin + count, [](float x) { return std::isfinite(x); })) continue;
    const spec::PlacedParam& placed = all.find(tensor.name);
    found = std::max<int64_t>(found, &placed - all.params.data());
  }
  if (ranks_.world != nullptr) {
    const engine::Vector furthest = engine::vector(&found, DType::i64, 1);
    ranks_.world->all_reduce(*stream_, furthest, furthest, comm::Reduce::max).wait(*stream_);
    stream_->synchronize();
  }
  return found < 0 ? "loss" : all.params[static_cast<size_t>(found)].name;
}

uint64_t Trainer::weights_hash() {
  weights_->wait(*stream_);
  const engine::Arena& weights = memory_->arena("weights");
  return hash_bytes(weights.data(), static_cast<size_t>(weights.bytes()));
}

EvaluationResult Trainer::evaluate(const BatchSource& next, int64_t batches) {
  EvaluationResult result;
  struct Totals {  // together, so that a reference fits into a function object without allocation
    double loss = 0;
    double tokens = 0;
  } totals;
  executor_->evaluate(
      *stream_, batches,
      [this, &next](int64_t micro) {
        load(next(), micro);
        weights_->begin_forward();
      },
      [this, &totals](int64_t micro) {
        totals.loss += sum_of(last_stage().row_losses());
        totals.tokens += static_cast<double>(loaded_targets(micro));
      });
  if (!counts_rows()) totals = {};
  parallel::sum_over_world(ranks_, *stream_, {&totals.loss, &totals.tokens});
  result.tokens = std::llround(totals.tokens);
  result.loss = totals.loss / static_cast<double>(std::max<int64_t>(result.tokens, 1));
  return result;
}

std::vector<float> Trainer::logits(const BatchView& view) {
  TUTTI_CHECK(recipe_.parallel.pp == 1, "logits of {} pipeline stages", recipe_.parallel.pp);
  load(view, 0);
  weights_->begin_forward();
  last_stage().evaluate(*stream_, loaded_.front());
  const engine::Matrix own = last_stage().final_output();
  const model::LossLayer& head = last_stage().loss_layer();
  const int64_t ways = model::tensor_ranks(head.tp);
  const int64_t rows = own.rows * ways;
  std::vector<char> gathered(static_cast<size_t>(own.bytes() * ways));
  const engine::Matrix y = model::gather_rows(
      *stream_, head.tp, own, engine::matrix(gathered.data(), own.dtype, rows, own.cols));
  // Columns of every rank, one rank's rows after another's.
  const int64_t padded = head.head.weight.rows;
  std::vector<float> all(static_cast<size_t>(ways * rows * padded));
  const engine::Matrix parts = engine::matrix(all.data(), DType::f32, ways * rows, padded);
  const engine::Matrix mine = model::own_rows(head.tp, parts);
  linear_forward(*stream_, head.head, y, mine);
  model::gather_rows(*stream_, head.tp, mine, parts);
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rows * head.all_columns));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < head.all_columns; ++column) {
      out.push_back(parts.row<float>(column / padded * rows + row)[column % padded]);
    }
  }
  return out;
}

void Trainer::add_boxes(
    std::vector<StateTensor>& out, const std::string& prefix, const spec::PlacedParam& placed,
    const std::function<engine::Vector(const parallel::OwnedSlice&)>& part) const {
  const int64_t end = placed.element_offset + placed.shard.count();
  for (const parallel::OwnedSlice& slice : optimizer_->slices()) {
    const int64_t from = std::max(placed.element_offset, slice.place.first);
    const int64_t until = std::min(end, slice.place.first + slice.place.count);
    if (from >= until) continue;
    float* data = part(slice).as<float>() + (placed.element_offset - slice.place.first);
    spec::visit_boxes(
        placed.param, placed.shard, from - placed.element_offset, until - from,
        [&](const spec::ShardBox& box) {
          out.push_back({prefix + placed.name, DType::f32, box.shape, data + box.local_first,
                         placed.param.shape, box.offset, saves(placed) && box.copy == 0});
        });
  }
}

std::vector<StateTensor> Trainer::state() const {
  using Part = engine::Vector optim::AdamwState::*;
  const std::pair<const char*, Part> parts[] = {{"param.", &optim::AdamwState::master},
                                                {"adamw.m.", &optim::AdamwState::moment1},
                                                {"adamw.v.", &optim::AdamwState::moment2}};
  std::vector<StateTensor> tensors;
  for (const auto& [prefix, part] : parts) {
    for (const spec::PlacedParam& placed : layout_.params) {
      if (!placed.param.trainable) break;
      add_boxes(tensors, prefix, placed,
                [part = part](const parallel::OwnedSlice& slice) { return slice.state.*part; });
    }
  }
  return tensors;
}

bool Trainer::counts_rows() const {
  return ranks_.at.tp == 0 && ranks_.at.pp == recipe_.parallel.pp - 1;
}

bool Trainer::saves(const spec::PlacedParam& placed) const {
  const spec::Mesh& mesh = recipe_.parallel;
  const bool expert = placed.param.expert && mesh.ep > 1;
  if (placed.name == spec::tied_copy(recipe_, ranks_.at)) return false;  // the first stage does
  return mesh.zero >= 1 || spec::replica_rank(mesh, ranks_.at, expert) == 0;
}

std::vector<StateTensor> Trainer::gradient_tensors() const {
  std::vector<StateTensor> tensors;
  for (const spec::PlacedParam& placed : layout_.params) {
    if (!placed.param.trainable) break;
    add_boxes(tensors, "", placed,
              [](const parallel::OwnedSlice& slice) { return slice.state.gradient; });
  }
  return tensors;
}

}  // namespace tutti::train
