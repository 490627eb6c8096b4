// Runs the actions of spec::Schedule over the virtual stages of one rank.
//
// A micro-batch takes its slots as early as there are any, so that what the stage before sends is
// received there without staging, while this rank still computes something else; gradients are
// received into one of two buffers, on which the backward pass then works, and from which its
// result is sent on. Sends are only enqueued. A rank waits where an action needs what has not
// arrived yet, and where it would overwrite what has not been fetched yet; meanwhile every receive
// whose buffer becomes free is posted, so ranks wait for each other in the order of the schedule
// alone.
//
// Where calls of a rank start in the order in which they were made (Group::starts_in_order), a
// receive that is posted early would keep back the sends that its message depends on. There each is
// posted when its action comes. The order is then the schedule's, whatever is done when.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/engine/stream.h"
#include "tutti/parallel/passes.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/schedule.h"

namespace tutti::parallel {

struct StepHooks {
  // Brings micro-batch `micro` to where the stages look for it; in order.
  std::function<void(int64_t micro)> load;
  // With several ranks that hold the same parameters. Before the passes of a chunk: weights that
  // other ranks updated must be here.
  std::function<void(const spec::Action& action)> gather = {};
  // All gradients of this chunk of this micro-batch (ZeRO 2 and 3), or of the step, are added.
  std::function<void(const spec::Action& action)> reduce = {};
  // Before every action, where somebody wants to know.
  std::function<void(const spec::Action& action)> enter = {};
};

// What travels between the ranks of a pipeline, [N, H] f32 each.
struct Boundary {
  comm::Group* activations = nullptr;  // the ranks along pp; null: one
  comm::Group* gradients = nullptr;    // of which these calls have their own order
  std::array<engine::Matrix, 2> send = {};
  std::array<engine::Matrix, 2> d_residual = {};  // on one rank twice the same
};

class Executor {
 public:
  // `actions` of pipeline rank `stage` (spec::step_actions); chunks: its virtual stages, which
  // outlive the executor.
  Executor(const spec::Mesh& mesh, int64_t stage, std::vector<spec::Action> actions,
           std::vector<Passes*> chunks, const Boundary& boundary);

  // All passes of a step. Gradients are overwritten by the first micro-batch and added to by the
  // others. update, evaluate and save are the caller's. Returns when everything sent has been
  // fetched.
  void run(engine::Stream& stream, const StepHooks& hooks);

  // Forward passes of micro-batches 0 to count - 1 through the pipeline, without dropout. load as
  // above; done: after each, on the rank that has the loss.
  void evaluate(engine::Stream& stream, int64_t count, const std::function<void(int64_t)>& load,
                const std::function<void(int64_t)>& done);

 private:
  // Messages of one kind: as many as `begun` receives are posted or sends enqueued.
  struct Messages {
    std::array<comm::Ticket, 2> tickets;
    size_t begun = 0;
    size_t ended = 0;  // of receives: waited for
    comm::Ticket& ticket(size_t number) { return tickets[number % 2]; }
  };

  bool is_first(int64_t chunk) const { return stage_ == 0 && chunk == 0; }
  bool is_last(int64_t chunk) const { return stage_ == mesh_.pp - 1 && chunk == mesh_.vpp - 1; }
  Passes& passes(const spec::Action& action) { return *chunks_[static_cast<size_t>(action.chunk)]; }
  void execute(engine::Stream& stream, const StepHooks& hooks, const spec::Action& action);
  // The next forward or backward pass gets its place, and its receive is posted.
  void enter_forward(engine::Stream& stream);
  void enter_backward(engine::Stream& stream);
  void post_receives(engine::Stream& stream);
  void post_receive_of(engine::Stream& stream, const spec::Action& action);
  void wait(engine::Stream& stream, comm::Ticket ticket);
  engine::Matrix send_buffer(engine::Stream& stream);
  void send(engine::Stream& stream);
  void send_gradient(engine::Stream& stream);
  comm::Ticket receive(engine::Stream& stream, Passes& passes, int64_t micro);

  spec::Mesh mesh_;
  int64_t stage_;
  std::vector<spec::Action> actions_;
  std::vector<spec::Action> forwards_, backwards_;  // of these
  std::vector<Passes*> chunks_;
  Boundary boundary_;
  int next_rank_ = 0, previous_rank_ = 0;
  bool posts_early_ = true;

  size_t forwards_done_ = 0;
  size_t entered_ = 0;           // forward passes that have their slots
  size_t gradient_buffers_ = 0;  // backward passes that have their buffer
  size_t backwards_done_ = 0;    // and are done with it, but for sending
  Messages received_, sent_;     // activations
  Messages received_gradients_;
  std::array<comm::Ticket, 2> sent_gradients_;  // of each buffer
};

}  // namespace tutti::parallel
