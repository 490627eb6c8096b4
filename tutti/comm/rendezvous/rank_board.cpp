#include "tutti/comm/rendezvous/rank_board.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/units.h"

namespace tutti::comm {

struct alignas(64) RankBoard::Slot {
  std::atomic<uint32_t> phase;
  std::atomic<int32_t> action;  // 1 + kind; 0: none
  std::atomic<int64_t> step;
  std::atomic<int64_t> micro;
  std::atomic<int64_t> chunk;
  std::atomic<int64_t> part;
  std::atomic<double> since_seconds;
  std::atomic<double> seen_seconds;
  std::atomic<uint32_t> waits;
  std::atomic<int32_t> process;
};

std::string state_text(const RankState& state, double now_seconds) {
  std::string text;
  switch (state.phase) {
    case RankPhase::absent: return "not there yet";
    case RankPhase::starting: text = "start-up"; break;
    case RankPhase::training: text = fmt::format("step {}", state.step); break;
    case RankPhase::evaluating: text = fmt::format("evaluation after step {}", state.step); break;
    case RankPhase::saving: text = fmt::format("the checkpoint after step {}", state.step); break;
    case RankPhase::finishing: text = fmt::format("the end after step {}", state.step); break;
  }
  if (state.in_action) {
    const spec::Action& action = state.action;
    const bool once =
        action.kind == spec::ActionKind::norm || action.kind == spec::ActionKind::update;
    text += fmt::format(", {}", spec::action_name(action.kind));
    if (action.part >= 0 && !once) text += fmt::format(" of part {}", action.part);
    if (!once) text += fmt::format(" of micro-batch {}", action.micro);
    if (state.action.chunk > 0) text += fmt::format(" in chunk {}", state.action.chunk);
  }
  return text + ", for " + format_seconds(std::max(0.0, now_seconds - state.since_seconds));
}

int64_t RankBoard::bytes(int ranks) { return static_cast<int64_t>(sizeof(Slot)) * ranks; }

RankBoard::RankBoard(std::shared_ptr<Segment> segment, int ranks)
    : segment_(std::move(segment)), ranks_(ranks), slots_(static_cast<Slot*>(segment_->data())) {
  TUTTI_CHECK(segment_->bytes() == bytes(ranks), "a board of {} bytes for {} ranks",
              segment_->bytes(), ranks);
}

void RankBoard::enter(int rank, RankPhase phase, int64_t step) const {
  Slot& slot = slots_[rank];
  slot.action = 0;
  slot.step = step;
  slot.since_seconds = monotonic_seconds();
  slot.phase = static_cast<uint32_t>(phase);
}

void RankBoard::enter(int rank, const spec::Action& action) const {
  Slot& slot = slots_[rank];
  slot.micro.store(action.micro, std::memory_order_relaxed);
  slot.chunk.store(action.chunk, std::memory_order_relaxed);
  slot.part.store(action.part, std::memory_order_relaxed);
  slot.since_seconds.store(monotonic_seconds(), std::memory_order_relaxed);
  slot.action.store(1 + static_cast<int32_t>(action.kind), std::memory_order_release);
}

void RankBoard::show(int rank, bool waits) const {
  slots_[rank].waits = waits ? 1 : 0;
  slots_[rank].process = ::getpid();
  slots_[rank].seen_seconds = monotonic_seconds();
}

RankState RankBoard::state(int rank) const {
  const Slot& slot = slots_[rank];
  RankState state;
  state.phase = static_cast<RankPhase>(slot.phase.load());
  state.step = slot.step;
  const int32_t action = slot.action;
  state.in_action = action > 0;
  if (state.in_action) {
    state.action = {.kind = static_cast<spec::ActionKind>(action - 1),
                    .micro = slot.micro,
                    .chunk = slot.chunk,
                    .part = slot.part};
  }
  state.since_seconds = slot.since_seconds;
  state.seen_seconds = slot.seen_seconds;
  state.waits = slot.waits != 0;
  state.process = slot.process;
  return state;
}

}  // namespace tutti::comm
