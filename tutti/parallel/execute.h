// Runs lists of actions (spec/schedule/step_list.h). Every kind of action has one handler; nothing
// else of a step starts a copy between host and device, a collective between replicas or stages, or
// an update.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "tutti/engine/stream.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::parallel {

class Executor {
 public:
  using Handler = std::function<void(engine::Stream& stream, const spec::Action& action)>;

  // Aborts where the kind has a handler already.
  void handle(spec::ActionKind kind, Handler handler);
  // Is called before each action, on the thread that does it, after listeners that came earlier.
  void listen(Handler listener) { listeners_.push_back(std::move(listener)); }

  // Aborts, naming the first action without a handler.
  void check(std::span<const spec::Action> actions) const;

  void run(engine::Stream& stream, std::span<const spec::Action> actions) const;

 private:
  std::array<Handler, spec::kActionKinds> handlers_;
  std::vector<Handler> listeners_;
};

}  // namespace tutti::parallel
