#include "tutti/parallel/execute.h"

#include <algorithm>
#include <optional>

#include "tutti/base/check.h"

namespace tutti::parallel {

using spec::ActionKind;

void execute_passes(const std::vector<spec::Action>& actions, model::Stage& stage,
                    engine::Stream& stream, float gradient_scale, const StepHooks& hooks) {
  // One rank holds the activations of one micro-batch: the one loaded and not yet gone back.
  struct Loaded {
    int64_t micro = 0;
    model::MicroBatch batch;
  };
  std::optional<Loaded> loaded;
  const auto current = [&](const spec::Action& action) -> const model::MicroBatch& {
    TUTTI_CHECK(loaded && loaded->micro == action.micro,
                "{} of micro-batch {}, which is not loaded", spec::action_name(action.kind),
                action.micro);
    return loaded->batch;
  };
  int64_t backwards = 0;
  const int64_t micro_batches =
      std::count_if(actions.begin(), actions.end(),
                    [](const spec::Action& action) { return action.kind == ActionKind::backward; });
  for (size_t i = 0; i < actions.size(); ++i) {
    const spec::Action& action = actions[i];
    if (hooks.enter) hooks.enter(action);
    switch (action.kind) {
      case ActionKind::load:
        // The first and the last stage load on their own; on one rank it is the same micro-batch.
        if (loaded && loaded->micro == action.micro) break;
        TUTTI_CHECK(!loaded, "micro-batch {} loaded before the backward of {}", action.micro,
                    loaded->micro);
        loaded = {action.micro, hooks.load(action.micro)};
        break;
      case ActionKind::forward:
        stage.forward(stream, current(action));
        stage.loss_forward_backward(stream, current(action), gradient_scale, backwards == 0);
        hooks.loss_done(action.micro);
        break;
      case ActionKind::backward: {
        const spec::Action weight_gradient = {ActionKind::weight_gradient, action.micro,
                                              action.chunk};
        TUTTI_CHECK(i + 1 < actions.size() && actions[i + 1] == weight_gradient,
                    "a weight gradient apart from its backward needs a workspace of its own");
        stage.backward(
            stream, current(action), backwards == 0,
            hooks.every_layer || backwards == micro_batches - 1 ? hooks.layer_done : nullptr);
        loaded.reset();
        ++backwards;
        ++i;
        break;
      }
      case ActionKind::gather:
      case ActionKind::gather_backward: break;
      case ActionKind::reduce: hooks.reduce(); break;
      case ActionKind::update:
      case ActionKind::evaluate:
      case ActionKind::save: break;
      default:
        TUTTI_CHECK(false, "action '{}' belongs to a pipeline", spec::action_name(action.kind));
    }
  }
  TUTTI_CHECK(!loaded, "micro-batch {} had no backward pass", loaded->micro);
}

}  // namespace tutti::parallel
