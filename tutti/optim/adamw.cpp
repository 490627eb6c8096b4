#include "tutti/optim/adamw.h"

namespace tutti::optim {

std::vector<engine::AdamwSegment> decay_segments(const spec::ParamLayout& layout,
                                                 float weight_decay) {
  std::vector<engine::AdamwSegment> segments;
  for (size_t i = 0; i < layout.params.size(); ++i) {
    const spec::PlacedParam& placed = layout.params[i];
    if (!placed.param.trainable) break;
    // Padding behind a tensor holds zeros with zero gradients, so any decay keeps them.
    const int64_t end =
        i + 1 < layout.params.size() ? layout.params[i + 1].element_offset : layout.elements;
    const float decay = placed.param.decay ? weight_decay : 0;
    if (!segments.empty() && segments.back().weight_decay == decay) {
      segments.back().count = end - segments.back().first;
    } else {
      segments.push_back({placed.element_offset, end - placed.element_offset, decay});
    }
  }
  return segments;
}

double clip_factor(double norm, double clip_norm) {
  if (clip_norm == 0) return 1;
  const double factor = clip_norm / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

void adamw_update(engine::Stream& stream, const AdamwState& state,
                  const spec::OptimizerConfig& config, double learning_rate, double clip,
                  int64_t step) {
  stream.ops().adamw(stream, {.gradient = state.gradient,
                              .master = state.master,
                              .m = state.moment1,
                              .v = state.moment2,
                              .weights = state.weights,
                              .segments = state.segments,
                              .learning_rate = static_cast<float>(learning_rate),
                              .beta1 = static_cast<float>(config.beta1),
                              .beta2 = static_cast<float>(config.beta2),
                              .epsilon = static_cast<float>(config.epsilon),
                              .clip = static_cast<float>(clip),
                              .step = step});
}

}  // namespace tutti::optim
