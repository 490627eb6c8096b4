#include "tutti/parallel/pipeline_messages.h"

#include <chrono>
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

bool same_pass(const Action& a, const Action& b) {
  return a.micro == b.micro && a.chunk == b.chunk;
}

// The passes of this kind, whose layers follow one another.
void find_passes(std::span<const Action> actions, ActionKind kind, std::vector<Action>& out) {
  out.clear();
  for (const Action& action : actions) {
    if (action.kind != kind) continue;
    if (out.empty() || !same_pass(out.back(), action)) out.push_back(action);
  }
}

}  // namespace

PipelineMessages::PipelineMessages(const spec::Mesh& mesh, int64_t stage,
                                   std::vector<Inbox*> chunks, const Boundary& boundary)
    : mesh_(mesh),
      stage_(stage),
      chunks_(std::move(chunks)),
      boundary_(boundary),
      next_rank_(static_cast<int>((stage + 1) % mesh.pp)),
      previous_rank_(static_cast<int>((stage + mesh.pp - 1) % mesh.pp)) {
  TUTTI_CHECK(static_cast<int64_t>(chunks_.size()) == mesh.vpp, "{} chunks of {}", chunks_.size(),
              mesh.vpp);
  TUTTI_CHECK(mesh.pp == 1 || (boundary.activations != nullptr && boundary.gradients != nullptr),
              "a pipeline of {} without a group", mesh.pp);
  posts_early_ = mesh.pp == 1 || !boundary.activations->starts_in_order();
}

void PipelineMessages::begin(std::span<const Action> actions) {
  find_passes(actions, ActionKind::forward, forwards_);
  find_passes(actions, ActionKind::backward, backwards_);
  entered_ = gradient_buffers_ = backwards_done_ = 0;
}

void PipelineMessages::end(engine::Stream& stream) {
  for (const comm::Ticket& ticket : sent_.tickets) ticket.wait(stream);
  for (const comm::Ticket& ticket : sent_gradients_) ticket.wait(stream);
}

void PipelineMessages::before(engine::Stream& stream, const Action& action) {
  if (posts_early_) {
    post_receives(stream);
  } else {
    post_receive_of(stream, action);
  }
}

void PipelineMessages::enter_forward(engine::Stream& stream) {
  const Action& forward = forwards_[entered_++];
  Inbox& stage = inbox(forward);
  stage.enter(forward.micro);
  if (is_first(forward)) return;
  received_.ticket(received_.begun++) =
      boundary_.activations->receive(stream, flat(stage.input(forward.micro)), previous_rank_);
}

void PipelineMessages::enter_backward(engine::Stream& stream) {
  const size_t buffer = gradient_buffers_ % 2;
  const Action& backward = backwards_[gradient_buffers_++];
  if (is_last(backward)) return;
  received_gradients_.ticket(received_gradients_.begun++) =
      boundary_.gradients->receive(stream, flat(boundary_.d_residual[buffer]), next_rank_);
}

// Enters micro-batches in the order of their forward passes, so none takes the room of one before
// it, and posts the receives whose buffers are free; two of a kind at most.
void PipelineMessages::post_receives(engine::Stream& stream) {
  while (entered_ < forwards_.size() && received_.begun - received_.ended < 2 &&
         inbox(forwards_[entered_]).has_room()) {
    enter_forward(stream);
  }
  while (gradient_buffers_ < backwards_.size() && gradient_buffers_ < backwards_done_ + 2 &&
         sent_gradients_[gradient_buffers_ % 2].done()) {
    enter_backward(stream);
  }
}

// What this action is about to need, and not more.
void PipelineMessages::post_receive_of(engine::Stream& stream, const Action& action) {
  const bool forward = action.kind == ActionKind::receive || action.kind == ActionKind::forward;
  if (forward && entered_ < forwards_.size() && same_pass(forwards_[entered_], action)) {
    enter_forward(stream);
  }
  const bool backward =
      action.kind == ActionKind::receive_gradient || action.kind == ActionKind::backward;
  if (!backward || gradient_buffers_ > backwards_done_) return;
  sent_gradients_[backwards_done_ % 2].wait(stream);  // out of the same buffer
  enter_backward(stream);
}

void PipelineMessages::wait(engine::Stream& stream, comm::Ticket ticket) {
  while (posts_early_ && !ticket.done()) {
    const bool blocked =
        gradient_buffers_ < backwards_.size() && gradient_buffers_ < backwards_done_ + 2;
    if (!blocked) break;
    std::this_thread::sleep_for(kPollPeriod);
    post_receives(stream);
  }
  ticket.wait(stream);
}

void PipelineMessages::receive(engine::Stream& stream) {
  TUTTI_CHECK(received_.begun > received_.ended, "message {} was never asked for", received_.ended);
  wait(stream, received_.ticket(received_.ended));
  ++received_.ended;
}

void PipelineMessages::receive_gradient(engine::Stream& stream) {
  // Its buffer may still be on its way to another rank.
  while (gradient_buffers_ == backwards_done_) {
    wait(stream, sent_gradients_[gradient_buffers_ % 2]);
    post_receives(stream);
  }
  TUTTI_CHECK(received_gradients_.begun > received_gradients_.ended,
              "gradient {} was never asked for", received_gradients_.ended);
  wait(stream, received_gradients_.ticket(received_gradients_.ended));
  ++received_gradients_.ended;
}

engine::Matrix PipelineMessages::output(engine::Stream& stream) {
  wait(stream, sent_.ticket(sent_.begun));
  return boundary_.send[sent_.begun % 2];
}

void PipelineMessages::send(engine::Stream& stream) {
  const engine::Vector buffer = flat(boundary_.send[sent_.begun % 2]);
  sent_.ticket(sent_.begun) = boundary_.activations->send(stream, buffer, next_rank_);
  ++sent_.begun;
}

void PipelineMessages::await_gradient(engine::Stream& stream) {
  wait(stream, sent_gradients_[backwards_done_ % 2]);
}

void PipelineMessages::send_gradient(engine::Stream& stream) {
  const size_t buffer = backwards_done_++ % 2;
  sent_gradients_[buffer] =
      boundary_.gradients->send(stream, flat(boundary_.d_residual[buffer]), previous_rank_);
}

void handle_messages(Executor& executor, PipelineMessages& pipeline) {
  executor.listen([&pipeline](engine::Stream& stream, const Action& action) {
    pipeline.before(stream, action);
  });
  const auto handle = [&](ActionKind kind, void (PipelineMessages::*message)(engine::Stream&)) {
    executor.handle(kind, [&pipeline, message](engine::Stream& stream, const Action& /*action*/) {
      (pipeline.*message)(stream);
    });
  };
  handle(ActionKind::receive, &PipelineMessages::receive);
  handle(ActionKind::send, &PipelineMessages::send);
  handle(ActionKind::receive_gradient, &PipelineMessages::receive_gradient);
  handle(ActionKind::send_gradient, &PipelineMessages::send_gradient);
}

}  // namespace tutti::parallel
