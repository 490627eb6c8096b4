#include "tutti/train/tasks/evaluator.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/train/step/place_weights.h"

namespace tutti::train {
namespace {

// One rank looks at what any mesh has trained.
spec::Recipe on_one_rank(spec::Recipe recipe) {
  recipe.parallel = {};
  return recipe;
}

}  // namespace

Evaluator::Evaluator(const spec::Recipe& recipe, const float* master)
    : recipe_(on_one_rank(recipe)),
      layout_(spec::param_layout(spec::param_table(recipe.model, recipe.lora))) {
  spec::check_executable(recipe_);
  memory_ = std::make_unique<model::Memory>(spec::inference_memory_map(recipe_));
  stream_ = engine::make_cpu_stream(recipe_.threads);
  place_weights(*stream_, *memory_, master);
}

model::Stage& Evaluator::stage(model::BatchShape shape) {
  TUTTI_CHECK(shape.rows() == rows(), "{} x {} rows in memory for {}", shape.sequences,
              shape.tokens, rows());
  std::unique_ptr<model::Stage>& made = stages_[shape.tokens];
  if (!made) {
    made = std::make_unique<model::Stage>(recipe_.model, layout_, *memory_, shape,
                                          recipe_.train.seed, recipe_.precision, recipe_.narrow);
    made->prepare(*stream_);
  }
  return *made;
}

const float* Evaluator::row_losses(model::BatchShape shape, const BatchView& view) {
  shape.window = recipe_.model.window;
  const model::MicroBatch batch = load_micro_batch(*memory_, 0, shape, view).batch;
  model::Stage& forward = stage(shape);
  forward.evaluate(*stream_, batch);
  return forward.row_losses().as<float>();
}

EvaluationResult Evaluator::evaluate(const BatchView& batch) {
  const float* losses = row_losses({recipe_.batch.micro, recipe_.batch.sequence}, batch);
  EvaluationResult result;
  double sum = 0;
  for (int64_t i = 0; i < rows(); ++i) sum += static_cast<double>(losses[i]);
  result.tokens = std::count_if(batch.targets, batch.targets + rows(),
                                [](int32_t target) { return target >= 0; });
  result.loss = sum / static_cast<double>(std::max<int64_t>(result.tokens, 1));
  return result;
}

}  // namespace tutti::train
