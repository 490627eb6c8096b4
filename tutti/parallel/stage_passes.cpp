#include "tutti/parallel/stage_passes.h"

#include <utility>

namespace tutti::parallel {

StagePasses::StagePasses(model::Stage& stage, const LoadedBatches& loaded, StageCalls calls)
    : stage_(stage), loaded_(loaded), calls_(std::move(calls)) {}

const model::MicroBatch& StagePasses::batch(int64_t micro) const {
  return loaded_[static_cast<size_t>(micro) % loaded_.size()];
}

const model::Stage::LayerDone& StagePasses::layer_done(int64_t micro) const {
  const bool told = calls_.every_layer || micro == calls_.micro_batches - 1;
  return told ? calls_.layer_done : nobody_;
}

void StagePasses::forward(engine::Stream& stream, int64_t micro, engine::Matrix out) {
  stage_.forward(stream, micro, batch(micro), out);
  if (!stage_.share().last) return;
  stage_.loss_forward_backward(stream, micro, calls_.gradient_scale, micro == 0);
  if (calls_.loss_done) calls_.loss_done(stage_);
}

void StagePasses::evaluate(engine::Stream& stream, int64_t micro, engine::Matrix out) {
  stage_.evaluate(stream, micro, batch(micro), out);
}

void StagePasses::backward(engine::Stream& stream, int64_t micro, engine::Matrix d_residual) {
  stage_.backward(stream, micro, d_residual, micro == 0, layer_done(micro));
}

void StagePasses::weight_gradient(engine::Stream& stream, int64_t micro) {
  stage_.weight_gradient(stream, micro, micro == 0, layer_done(micro));
}

}  // namespace tutti::parallel
