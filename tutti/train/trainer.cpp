#include "tutti/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/parallel/execute.h"
#include "tutti/spec/memory.h"
#include "tutti/spec/profile.h"
#include "tutti/train/initialize.h"
#include "tutti/train/place_weights.h"

namespace tutti::train {
namespace {

engine::Vector flat(const engine::Arena& arena, DType dtype, int64_t elements) {
  return engine::vector(arena.at(0, elements * dtype_bytes(dtype)), dtype, elements);
}

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

Trainer::Trainer(const spec::Recipe& recipe)
    : recipe_(recipe), layout_(spec::param_layout(spec::param_table(recipe.model, recipe.lora))) {
  spec::check_executable(recipe_);
  // Every step has the same passes; evaluation and saving are decided by the session.
  actions_ = spec::step_actions(spec::make_schedule(recipe_), 0, 1);
  memory_ = std::make_unique<model::Memory>(spec::memory_map(recipe_));
  stream_ = engine::make_cpu_stream(recipe_.threads);
  stage_ = std::make_unique<model::Stage>(
      recipe_.model, layout_, *memory_,
      model::BatchShape{recipe_.batch.micro, recipe_.batch.sequence}, recipe_.train.seed);

  const int64_t n = layout_.trainable_elements;
  const bool mixed = recipe_.precision != spec::Precision::f32;
  optimizer_.gradient = flat(memory_->arena("gradients"), DType::f32, n);
  optimizer_.master = flat(memory_->arena(mixed ? "master" : "weights"), DType::f32, n);
  optimizer_.moment1 = flat(memory_->arena("moment1"), DType::f32, n);
  optimizer_.moment2 = flat(memory_->arena("moment2"), DType::f32, n);
  if (mixed) optimizer_.weights = flat(memory_->arena("weights"), DType::bf16, n);
  optimizer_.segments =
      optim::decay_segments(layout_, static_cast<float>(recipe_.optimizer.weight_decay));
  selection_biases_ = bind_selection_biases(recipe_.model, layout_, *memory_, optimizer_.master,
                                            optimizer_.weights);
  stage_->prepare();
  if (recipe_.distill.enabled()) make_teacher();
}

void Trainer::make_teacher() {
  const spec::Recipe teacher = spec::teacher_recipe(recipe_);
  teacher_memory_ = std::make_unique<model::Memory>(memory_->part(spec::kTeacherPrefix));
  teacher_ = std::make_unique<model::Stage>(teacher.model,
                                            spec::param_layout(spec::param_table(teacher.model)),
                                            *teacher_memory_, stage_->shape(), recipe_.train.seed);
  teacher_->prepare();
  stage_->distill_from(*teacher_, recipe_.distill);
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
    initialize_parameter(placed, recipe_.train.seed, values.data());
    set_parameter(placed, values.data());
  }
  initialize_trainable();
}

void Trainer::initialize_trainable() {
  float* master = optimizer_.master.as<float>();
  for (const engine::Vector* array :
       {&optimizer_.master, &optimizer_.moment1, &optimizer_.moment2}) {
    std::memset(array->data, 0, static_cast<size_t>(array->bytes()));
  }
  for (const spec::PlacedParam& placed : layout_.params) {
    if (!placed.param.trainable) break;
    initialize_parameter(placed, recipe_.train.seed, master + placed.element_offset);
  }
  state_changed();
}

void Trainer::set_parameter(const spec::PlacedParam& placed, const float* values) {
  const int64_t count = placed.param.count();
  if (placed.param.trainable) {
    std::copy_n(values, count, optimizer_.master.as<float>() + placed.element_offset);
    return;
  }
  const DType compute = spec::compute_type(recipe_.precision);
  char* weights = static_cast<char*>(memory_->arena("weights").data());
  void* at = weights + placed.element_offset * dtype_bytes(compute);
  if (compute == DType::f32) {
    std::copy_n(values, count, static_cast<float*>(at));
    return;
  }
  stream_->ops().convert(*stream_,
                         {.x = engine::vector(const_cast<float*>(values), DType::f32, count),
                          .out = engine::vector(at, compute, count)});
}

void Trainer::state_changed() {
  if (!optimizer_.weights) return;
  stream_->ops().convert(*stream_, {.x = optimizer_.master, .out = optimizer_.weights});
}

model::MicroBatch Trainer::load(const BatchView& view) {
  model::MicroBatch batch = load_micro_batch(*memory_, next_slot_, stage_->shape(), view);
  batch.row_scale = 1 / static_cast<float>(recipe_.batch.global * recipe_.batch.sequence);
  next_slot_ = 1 - next_slot_;
  return batch;
}

double Trainer::gradients(const BatchSource& next) {
  const int64_t rows = recipe_.batch.global * recipe_.batch.sequence;
  TUTTI_CHECK(!teacher_ || teacher_is_set_, "the teacher has no parameters yet");
  // Together, so that the hook fits into a function object without allocation.
  struct Sums {
    double loss = 0;
    double divergence = 0;
  } sums;
  step_targets_ = 0;
  parallel::StepHooks hooks;
  hooks.load = [&](int64_t /*micro*/) {
    const model::MicroBatch batch = load(next());
    step_targets_ += count_targets(batch);
    return batch;
  };
  hooks.loss_done = [this, &sums](int64_t /*micro*/) {
    sums.loss += sum_of(stage_->row_losses());
    if (teacher_) sums.divergence += sum_of(stage_->row_divergences());
  };
  parallel::execute_passes(actions_, *stage_, *stream_,
                           static_cast<float>(1 / static_cast<double>(rows)), hooks);
  if (step_targets_ == 0) {
    fail(ErrorKind::usage,
         "every target of a step's {} rows is masked or padding: there is nothing to learn; "
         "use a larger batch.global, or look at the corpus with 'tutti data inspect'",
         rows);
  }
  gradient_factor_ = static_cast<double>(rows) / static_cast<double>(step_targets_);
  const double cross_entropy = sums.loss / static_cast<double>(step_targets_);
  if (!teacher_) return cross_entropy;
  loss_parts_ = {cross_entropy, sums.divergence / static_cast<double>(step_targets_)};
  const double weight = recipe_.distill.weight;
  return (1 - weight) * loss_parts_->cross_entropy + weight * loss_parts_->divergence;
}

StepResult Trainer::step(const BatchSource& next, double learning_rate, int64_t update) {
  StepResult result;
  result.loss = gradients(next);
  result.targets = step_targets_;
  result.parts = loss_parts_;
  if (recipe_.model.moe.experts > 0) result.routing = routing_of_step(recipe_, *memory_);
  double sum_of_squares = 0;
  stream_->ops().squared_norm(*stream_,
                              {.x = optimizer_.gradient, .sum_of_squares = &sum_of_squares});
  result.gradient_norm = gradient_factor_ * std::sqrt(sum_of_squares);
  if (!std::isfinite(result.gradient_norm) || !std::isfinite(result.loss)) {
    result.nonfinite_tensor = first_nonfinite_gradient();
    return result;
  }
  const double clip = optim::clip_factor(result.gradient_norm, recipe_.optimizer.clip_norm);
  optim::adamw_update(*stream_, optimizer_, recipe_.optimizer, learning_rate,
                      clip * gradient_factor_, update);
  update_selection_biases(*stream_, selection_biases_, recipe_.model.moe.router_bias_rate);
  result.applied = true;
  return result;
}

std::string Trainer::first_nonfinite_gradient() const {
  const float* gradient = optimizer_.gradient.as<float>();
  for (auto placed = layout_.params.rbegin(); placed != layout_.params.rend(); ++placed) {
    if (!placed->param.trainable) continue;
    const float* begin = gradient + placed->element_offset;
    if (!std::all_of(begin, begin + placed->param.count(),
                     [](float x) { return std::isfinite(x); })) {
      return placed->name;
    }
  }
  return "loss";
}

EvaluationResult Trainer::evaluate(const BatchSource& next, int64_t batches) {
  EvaluationResult result;
  double sum = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const model::MicroBatch batch = load(next());
    stage_->evaluate(*stream_, batch);
    sum += sum_of(stage_->row_losses());
    result.tokens += count_targets(batch);
  }
  result.loss = sum / static_cast<double>(std::max<int64_t>(result.tokens, 1));
  return result;
}

std::vector<float> Trainer::logits(const BatchView& view) {
  const model::MicroBatch batch = load(view);
  stage_->evaluate(*stream_, batch);
  const engine::Matrix y = stage_->final_output();
  const model::LossLayer& head = stage_->loss_layer();
  const int64_t padded = head.head.weight.rows;
  std::vector<float> all(static_cast<size_t>(y.rows * padded));
  linear_forward(*stream_, head.head, y, engine::matrix(all.data(), DType::f32, y.rows, padded));
  std::vector<float> out;
  out.reserve(static_cast<size_t>(y.rows * head.vocabulary));
  for (int64_t row = 0; row < y.rows; ++row) {
    const auto begin = all.begin() + row * padded;
    out.insert(out.end(), begin, begin + head.vocabulary);
  }
  return out;
}

std::vector<StateTensor> Trainer::state() const {
  std::vector<StateTensor> tensors;
  const std::pair<const char*, const engine::Vector*> parts[] = {{"param.", &optimizer_.master},
                                                                 {"adamw.m.", &optimizer_.moment1},
                                                                 {"adamw.v.", &optimizer_.moment2}};
  for (const auto& [prefix, array] : parts) {
    for (const spec::PlacedParam& placed : layout_.params) {
      if (!placed.param.trainable) break;
      tensors.push_back({prefix + placed.name, DType::f32, placed.param.shape,
                         array->as<float>() + placed.element_offset});
    }
  }
  return tensors;
}

std::vector<StateTensor> Trainer::gradient_tensors() const {
  std::vector<StateTensor> tensors;
  for (const spec::PlacedParam& placed : layout_.params) {
    if (!placed.param.trainable) break;
    tensors.push_back({placed.name, DType::f32, placed.param.shape,
                       optimizer_.gradient.as<float>() + placed.element_offset});
  }
  return tensors;
}

}  // namespace tutti::train
