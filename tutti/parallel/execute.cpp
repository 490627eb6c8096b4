#include "tutti/parallel/execute.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "tutti/base/check.h"

namespace tutti::parallel {
namespace {

using spec::Action;
using spec::ActionKind;

constexpr std::chrono::microseconds kPollPeriod{20};

engine::Vector flat(const engine::Matrix& matrix) {
  TUTTI_CHECK(matrix.ld == matrix.cols, "a boundary tensor with gaps between rows");
  return engine::vector(matrix.data, matrix.dtype, matrix.rows * matrix.cols);
}

std::vector<Action> of_kind(const std::vector<Action>& actions, ActionKind kind) {
  std::vector<Action> out;
  std::copy_if(actions.begin(), actions.end(), std::back_inserter(out),
               [kind](const Action& action) { return action.kind == kind; });
  return out;
}

}  // namespace

Executor::Executor(const spec::Mesh& mesh, int64_t stage, std::vector<Action> actions,
                   std::vector<Passes*> chunks, const Boundary& boundary)
    : mesh_(mesh),
      stage_(stage),
      actions_(std::move(actions)),
      forwards_(of_kind(actions_, ActionKind::forward)),
      backwards_(of_kind(actions_, ActionKind::backward)),
      chunks_(std::move(chunks)),
      boundary_(boundary),
      next_rank_(static_cast<int>((stage + 1) % mesh.pp)),
      previous_rank_(static_cast<int>((stage + mesh.pp - 1) % mesh.pp)) {
  TUTTI_CHECK(static_cast<int64_t>(chunks_.size()) == mesh.vpp, "{} chunks of {}", chunks_.size(),
              mesh.vpp);
  TUTTI_CHECK(mesh.pp == 1 || (boundary.activations != nullptr && boundary.gradients != nullptr),
              "a pipeline of {} without a group", mesh.pp);
  posts_early_ = mesh.pp == 1 || !boundary.activations->starts_in_order();
  entered_ = forwards_.size();  // no step is under way
  gradient_buffers_ = backwards_.size();
}

void Executor::run(engine::Stream& stream, const StepHooks& hooks) {
  entered_ = forwards_done_ = gradient_buffers_ = backwards_done_ = 0;
  for (const Action& action : actions_) {
    if (hooks.enter) hooks.enter(action);
    if (posts_early_) {
      post_receives(stream);
    } else {
      post_receive_of(stream, action);
    }
    execute(stream, hooks, action);
  }
  for (const comm::Ticket& ticket : sent_.tickets) ticket.wait(stream);
  for (const comm::Ticket& ticket : sent_gradients_) ticket.wait(stream);
}

void Executor::execute(engine::Stream& stream, const StepHooks& hooks, const Action& action) {
  switch (action.kind) {
    case ActionKind::load: hooks.load(action.micro); break;
    case ActionKind::gather:
    case ActionKind::gather_backward:
      if (hooks.gather) hooks.gather(action);
      break;
    case ActionKind::receive:
      wait(stream, received_.ticket(received_.ended));
      ++received_.ended;
      break;
    case ActionKind::forward:
      passes(action).forward(stream, action.micro,
                             is_last(action.chunk) ? engine::Matrix{} : send_buffer(stream));
      ++forwards_done_;
      break;
    case ActionKind::send: send(stream); break;
    case ActionKind::receive_gradient:
      // Its buffer may still be on its way to another rank.
      while (gradient_buffers_ == backwards_done_) {
        wait(stream, sent_gradients_[gradient_buffers_ % 2]);
        post_receives(stream);
      }
      wait(stream, received_gradients_.ticket(received_gradients_.ended));
      ++received_gradients_.ended;
      break;
    case ActionKind::backward:
      wait(stream, sent_gradients_[backwards_done_ % 2]);
      passes(action).backward(stream, action.micro, boundary_.d_residual[backwards_done_ % 2]);
      if (is_first(action.chunk)) ++backwards_done_;
      break;
    case ActionKind::weight_gradient:
      if (passes(action).delays_weights()) passes(action).weight_gradient(stream, action.micro);
      passes(action).leave(action.micro);
      break;
    case ActionKind::send_gradient: send_gradient(stream); break;
    case ActionKind::reduce:
      if (hooks.reduce) hooks.reduce(action);
      break;
    case ActionKind::update:
    case ActionKind::evaluate:
    case ActionKind::save: break;
  }
}

void Executor::enter_forward(engine::Stream& stream) {
  const Action& forward = forwards_[entered_++];
  passes(forward).enter(forward.micro);
  if (is_first(forward.chunk)) return;
  received_.ticket(received_.begun++) = receive(stream, passes(forward), forward.micro);
}

void Executor::enter_backward(engine::Stream& stream) {
  const size_t buffer = gradient_buffers_ % 2;
  const Action& backward = backwards_[gradient_buffers_++];
  if (is_last(backward.chunk)) return;
  received_gradients_.ticket(received_gradients_.begun++) =
      boundary_.gradients->receive(stream, flat(boundary_.d_residual[buffer]), next_rank_);
}

// Enters micro-batches in the order of their forward passes, so none takes the room of one before
// it, and posts the receives whose buffers are free; two of a kind at most.
void Executor::post_receives(engine::Stream& stream) {
  while (entered_ < forwards_.size() && received_.begun - received_.ended < 2 &&
         passes(forwards_[entered_]).has_room()) {
    enter_forward(stream);
  }
  while (gradient_buffers_ < backwards_.size() && gradient_buffers_ < backwards_done_ + 2 &&
         sent_gradients_[gradient_buffers_ % 2].done()) {
    enter_backward(stream);
  }
}

// What this action is about to need, and not more.
void Executor::post_receive_of(engine::Stream& stream, const Action& action) {
  const bool forward = action.kind == ActionKind::receive || action.kind == ActionKind::forward;
  if (forward && entered_ == forwards_done_) enter_forward(stream);
  const bool backward =
      action.kind == ActionKind::receive_gradient || action.kind == ActionKind::backward;
  if (!backward || gradient_buffers_ > backwards_done_) return;
  sent_gradients_[backwards_done_ % 2].wait(stream);  // out of the same buffer
  enter_backward(stream);
}

void Executor::wait(engine::Stream& stream, comm::Ticket ticket) {
  while (posts_early_ && !ticket.done()) {
    const bool blocked =
        gradient_buffers_ < backwards_.size() && gradient_buffers_ < backwards_done_ + 2;
    if (!blocked) break;
    std::this_thread::sleep_for(kPollPeriod);
    post_receives(stream);
  }
  ticket.wait(stream);
}

comm::Ticket Executor::receive(engine::Stream& stream, Passes& passes, int64_t micro) {
  return boundary_.activations->receive(stream, flat(passes.input(micro)), previous_rank_);
}

engine::Matrix Executor::send_buffer(engine::Stream& stream) {
  wait(stream, sent_.ticket(sent_.begun));
  return boundary_.send[sent_.begun % 2];
}

void Executor::send(engine::Stream& stream) {
  const engine::Vector buffer = flat(boundary_.send[sent_.begun % 2]);
  sent_.ticket(sent_.begun) = boundary_.activations->send(stream, buffer, next_rank_);
  ++sent_.begun;
}

void Executor::send_gradient(engine::Stream& stream) {
  const size_t buffer = backwards_done_++ % 2;
  sent_gradients_[buffer] =
      boundary_.gradients->send(stream, flat(boundary_.d_residual[buffer]), previous_rank_);
}

void Executor::evaluate(engine::Stream& stream, int64_t count,
                        const std::function<void(int64_t)>& load,
                        const std::function<void(int64_t)>& done) {
  for (int64_t micro = 0; micro < count; ++micro) {
    load(micro);
    for (size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      const auto number = static_cast<int64_t>(chunk);
      Passes& stage = *chunks_[chunk];
      stage.enter(micro);
      if (!is_first(number)) receive(stream, stage, micro).wait(stream);
      const bool last = is_last(number);
      stage.evaluate(stream, micro, last ? engine::Matrix{} : send_buffer(stream));
      stage.leave(micro);
      if (last) {
        done(micro);
      } else {
        send(stream);
      }
    }
  }
  for (const comm::Ticket& ticket : sent_.tickets) ticket.wait(stream);
}

}  // namespace tutti::parallel
