// The scalars of an update from the sums of a step (formulas in update_ops.h): one implementation
// for the host and for kernels.
#pragma once

#include <cmath>

#include "tutti/engine/host_device.h"
#include "tutti/engine/ops.h"

namespace tutti::engine {

// The factor that scales a gradient of `norm` down to `clip_norm`; 1 if norm is smaller or
// clip_norm is 0. As torch.nn.utils.clip_grad_norm_: clip_norm / (norm + 1e-6).
TUTTI_HOST_DEVICE inline double clip_factor(double norm, double clip_norm) {
  if (clip_norm == 0) return 1;
  const double factor = clip_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

// The loss that is optimised with a teacher (spec/recipe/distill.h).
TUTTI_HOST_DEVICE inline double mixed_loss(double cross_entropy, double divergence, double weight) {
  return (1 - weight) * cross_entropy + weight * divergence;
}

// Scalars of update number `step`. learning_rate comes from the recipe's schedule and is rounded to
// f32 here, so that every caller gets the same bits.
TUTTI_HOST_DEVICE inline UpdateScalars update_scalars(double learning_rate, double step,
                                                      float beta1, float beta2, float clip) {
  const double bias1 = 1 - std::pow(static_cast<double>(beta1), step);
  const double bias2 = 1 - std::pow(static_cast<double>(beta2), step);
  const auto rate = static_cast<float>(learning_rate);
  UpdateScalars out;
  out.learning_rate = rate;
  out.step_size = static_cast<float>(static_cast<double>(rate) / bias1);
  out.inverse_root = static_cast<float>(1 / std::sqrt(bias2));
  out.clip = clip;
  out.apply = 1;
  out.update = step;
  return out;
}

// add_rows for one column.
TUTTI_HOST_DEVICE inline double column_total(const AddRowsArgs& args, int64_t column) {
  double total = 0;
  for (int64_t i = 0; i < args.rows; ++i) total += args.x[i * args.width + column];
  return total;
}

// The operation prepare_update.
TUTTI_HOST_DEVICE inline void prepare_update(const PrepareUpdateArgs& args) {
  const StepInputs in = *args.inputs;
  const double targets = *args.targets;
  const double factor = in.rows / targets;
  const double cross_entropy = *args.loss_sum / targets;
  const bool distill = args.divergence_sum != nullptr;
  const double divergence = distill ? *args.divergence_sum / targets : 0;
  const double loss =
      distill ? mixed_loss(cross_entropy, divergence, args.divergence_weight) : cross_entropy;
  const double norm = factor * std::sqrt(*args.squared_norm);
  UpdateScalars out =
      update_scalars(in.learning_rate, *args.updates + 1, args.beta1, args.beta2,
                     static_cast<float>(factor * clip_factor(norm, args.clip_norm)));
  out.apply = targets > 0 && std::isfinite(norm) && std::isfinite(loss) ? 1 : 0;
  *args.scalars = out;
  *args.updates += static_cast<double>(out.apply);
  *args.outputs = {loss,          norm,      static_cast<double>(out.apply), -1, targets,
                   cross_entropy, divergence};
}

}  // namespace tutti::engine
