// A stage of the model as the executor runs it.
#pragma once

#include <functional>
#include <vector>

#include "tutti/model/stage.h"
#include "tutti/parallel/passes.h"

namespace tutti::parallel {

// The micro-batches that are loaded: number m is at m % size.
using LoadedBatches = std::vector<model::MicroBatch>;

struct StageCalls {
  float gradient_scale = 1;
  int64_t micro_batches = 1;  // of a step
  // After the loss of a micro-batch: the stage's row_losses() hold its rows until the next one.
  std::function<void(model::Stage& stage)> loss_done;
  // In the last micro-batch: the gradients of this layer, and of all above it on this rank, are
  // final; with every_layer in every micro-batch.
  model::Stage::LayerDone layer_done;
  bool every_layer = false;
};

class StagePasses : public Passes {
 public:
  // Both outlive it.
  StagePasses(model::Stage& stage, const LoadedBatches& loaded, StageCalls calls);

  bool has_room() const override { return stage_.has_room(); }
  void enter(int64_t micro) override { stage_.enter(micro); }
  void leave(int64_t micro) override { stage_.leave(micro); }
  engine::Matrix input(int64_t micro) override { return stage_.input(micro); }
  void forward(engine::Stream& stream, int64_t micro, engine::Matrix out) override;
  void evaluate(engine::Stream& stream, int64_t micro, engine::Matrix out) override;
  void backward(engine::Stream& stream, int64_t micro, engine::Matrix d_residual) override;
  bool delays_weights() const override { return stage_.delays_weights(); }
  void weight_gradient(engine::Stream& stream, int64_t micro) override;

 private:
  const model::MicroBatch& batch(int64_t micro) const;
  const model::Stage::LayerDone& layer_done(int64_t micro) const;

  model::Stage& stage_;
  const LoadedBatches& loaded_;
  StageCalls calls_;
  model::Stage::LayerDone nobody_;
};

}  // namespace tutti::parallel
