#include "tutti/parallel/execute.h"

#include <utility>

#include "tutti/base/check.h"

namespace tutti::parallel {

void Executor::handle(spec::ActionKind kind, Handler handler) {
  Handler& own = handlers_[static_cast<size_t>(kind)];
  TUTTI_CHECK(!own, "{} has a handler already", spec::action_name(kind));
  own = std::move(handler);
}

void Executor::check(std::span<const spec::Action> actions) const {
  for (const spec::Action& action : actions) {
    TUTTI_CHECK(handlers_[static_cast<size_t>(action.kind)], "nothing handles {}",
                spec::action_name(action.kind));
  }
}

void Executor::run(engine::Stream& stream, std::span<const spec::Action> actions) const {
  for (const spec::Action& action : actions) {
    for (const Handler& listener : listeners_) listener(stream, action);
    const engine::NamedRange range(stream, spec::action_name(action.kind));
    handlers_[static_cast<size_t>(action.kind)](stream, action);
  }
}

}  // namespace tutti::parallel
