// The messages between the stages of a pipeline, in the order of a list of actions
// (spec/schedule/step_list.h), and the memory that they come to and go from.
//
// A micro-batch enters its stage, which gives it slots, as early as there are any, so that what the
// stage before sends is received there without staging, while this rank still computes something
// else; gradients are received into one of two buffers, on which the backward pass then works, and
// from which its result is sent on. Sends are only enqueued. A rank waits where an action needs
// what has not arrived yet, and where it would overwrite what has not been fetched yet; meanwhile
// every receive whose buffer becomes free is posted, so ranks wait for each other in the order of
// the schedule alone.
//
// Where calls of a rank start in the order in which they were made (Group::starts_in_order), a
// receive that is posted early would keep back the sends that its message depends on. There each is
// posted when its action comes. The order is then the schedule's, whatever is done when.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/engine/stream.h"
#include "tutti/engine/tensor.h"
#include "tutti/parallel/execute.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::parallel {

// Buffers of the in-flight micro-batches of one virtual stage.
class Inbox {
 public:
  virtual ~Inbox() = default;

  // Whether another micro-batch has a slot; gives it one.
  virtual bool has_room() const = 0;
  virtual void enter(int64_t micro) = 0;

  // Where the output of the stage before is received; asked for after enter, not of the first.
  virtual engine::Matrix input(int64_t micro) = 0;
};

// What travels between the ranks of a pipeline, [N, H] f32 each.
struct Boundary {
  comm::Group* activations = nullptr;  // the ranks along pp; null: one
  comm::Group* gradients = nullptr;    // of which these calls have their own order
  std::array<engine::Matrix, 2> send = {};
  std::array<engine::Matrix, 2> d_residual = {};  // on one rank twice the same
};

class PipelineMessages {
 public:
  // chunks: of the virtual stages of pipeline rank `stage`; they outlive this.
  PipelineMessages(const spec::Mesh& mesh, int64_t stage, std::vector<Inbox*> chunks,
                   const Boundary& boundary);

  // Around a list of actions that are then executed; at the end all that was sent has left.
  void begin(std::span<const spec::Action> actions);
  void end(engine::Stream& stream);

  // Before every action: lets micro-batches enter and posts receives.
  void before(engine::Stream& stream, const spec::Action& action);

  void receive(engine::Stream& stream);
  void receive_gradient(engine::Stream& stream);
  // The output of a chunk, for its last layer, and what sends it.
  engine::Matrix output(engine::Stream& stream);
  void send(engine::Stream& stream);

  // The gradient of the residual stream in the backward pass that is next or under way. Before its
  // first layer: waits until the buffer's last message has left.
  engine::Matrix gradient() const { return boundary_.d_residual[backwards_done_ % 2]; }
  void await_gradient(engine::Stream& stream);
  // The pass is done with it: sends it on, or, of the first virtual stage, drops it.
  void send_gradient(engine::Stream& stream);
  void drop_gradient() { ++backwards_done_; }

 private:
  // Messages of one kind: as many as `begun` receives are posted or sends enqueued.
  struct Messages {
    std::array<comm::Ticket, 2> tickets;
    size_t begun = 0;
    size_t ended = 0;  // of receives: waited for
    comm::Ticket& ticket(size_t number) { return tickets[number % 2]; }
  };

  bool is_first(const spec::Action& pass) const { return stage_ == 0 && pass.chunk == 0; }
  bool is_last(const spec::Action& pass) const {
    return stage_ == mesh_.pp - 1 && pass.chunk == mesh_.vpp - 1;
  }
  Inbox& inbox(const spec::Action& pass) { return *chunks_[static_cast<size_t>(pass.chunk)]; }
  // The next forward or backward pass gets its memory, and its receive is posted.
  void enter_forward(engine::Stream& stream);
  void enter_backward(engine::Stream& stream);
  void post_receives(engine::Stream& stream);
  void post_receive_of(engine::Stream& stream, const spec::Action& action);
  void wait(engine::Stream& stream, comm::Ticket ticket);

  spec::Mesh mesh_;
  int64_t stage_;
  std::vector<Inbox*> chunks_;
  Boundary boundary_;
  int next_rank_ = 0, previous_rank_ = 0;
  bool posts_early_ = true;

  // Of the list that is executed: a pass over a chunk is one, however many layers it has.
  std::vector<spec::Action> forwards_, backwards_;
  size_t entered_ = 0;           // forward passes that have their slots
  size_t gradient_buffers_ = 0;  // backward passes that have their buffer
  size_t backwards_done_ = 0;    // and are done with it, but for sending
  Messages received_, sent_;     // activations
  Messages received_gradients_;
  std::array<comm::Ticket, 2> sent_gradients_;  // of each buffer
};

// Lets `pipeline` see every action of `executor` before it is done, and handle those that receive
// and send. It outlives the executor's use.
void handle_messages(Executor& executor, PipelineMessages& pipeline);

}  // namespace tutti::parallel
