// The passes of one virtual stage as a schedule calls them: model::Stage in training
// (stage_passes.h); something that only takes time where a schedule itself is measured.
#pragma once

#include <cstdint>

#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"

namespace tutti::parallel {

class Passes {
 public:
  virtual ~Passes() = default;

  // Whether another micro-batch finds room; takes it; gives it back.
  virtual bool has_room() const = 0;
  virtual void enter(int64_t micro) = 0;
  virtual void leave(int64_t micro) = 0;

  // Where the output of the stage before is received; asked for after enter, not of the first.
  virtual engine::Matrix input(int64_t micro) = 0;

  // `out` receives the stage's output; empty on the last stage, whose forward pass includes the
  // loss and its gradient.
  virtual void forward(engine::Stream& stream, int64_t micro, engine::Matrix out) = 0;
  virtual void evaluate(engine::Stream& stream, int64_t micro, engine::Matrix out) = 0;

  // d_residual holds the gradient of the output (on the last stage anything), and afterwards that
  // of the input. Where weight gradients do not run apart it includes them.
  virtual void backward(engine::Stream& stream, int64_t micro, engine::Matrix d_residual) = 0;
  virtual bool delays_weights() const = 0;
  virtual void weight_gradient(engine::Stream& stream, int64_t micro) = 0;
};

}  // namespace tutti::parallel
