// The group of ranks that have a GPU each, through NCCL. Builds without NCCL use stub.cpp.
//
// Calls are enqueued on streams of the group's own, which wait for the caller's stream by event,
// and the caller's stream for theirs. Collectives have one communicator; messages have one for each
// of the group's links (GroupInfo), so that directions and peers do not wait for each other; a
// shift() is one call of the collectives'. All are made and connected when the group is made. A
// thread watches communicators and the store, so that a failure or abort anywhere ends the work on
// every GPU (ncclCommAbort).
//
// Order. The calls of a rank, of all its groups, are launched where they are made, one after the
// other (lane.h), and start on its GPU in that order (NCCL_LAUNCH_ORDER_IMPLICIT): a call
// starts when
//   - the one launched before it, of any group, has started;
//   - what its caller's stream held when it was made is done;
//   - the one before it in its lane, the collectives of a group or one link, is done;
// and is done when all its ranks have started theirs. So no ranks wait for each other in a circle
// if there is one order of all calls that each rank's own order agrees with, a receive being where
// its message is needed: take the first call of that order which never starts; those before it are
// done, or have started and need nothing but one of the same index or earlier. Callers keep to it
// so:
//   - Ranks of a stage make the same calls. For these a collective among them, a shift of a ring,
//     a reduction beside the backward pass or a gather ahead of its layer, is a step that all take
//     at once, whatever of it is still running.
//   - Between stages the order is the schedule's, for every receive is asked for when its action
//     comes (parallel/pipeline_messages.h), and a send when its pass is done. That no schedule
//     comes to a halt under these three rules is tested by playing them
//     (parallel/launch_order_test.cpp).
//   - Where the first call of a kind still makes NCCL connect, its host waits for the others'
//     hosts in the same order, by the same argument.
//   - Messages in opposite directions may be launched in different orders by their two ranks. That
//     is right as long as what has started fits on the GPU at once; so messages take few
//     multiprocessors, and CUDA 12.3 is demanded, before which NCCL has a call end where here it
//     has to start.
// Watchers launch nothing; aborting does not keep to the order. It takes the device's turn if it
// can. A call that never returns is the last resort: then the communicator is aborted under it,
// which its guide does not promise to work with communicators that block
// (docs/gpu-library-calls.md).
//
// Operands are the device's: what hosts exchange goes through another group
// (comm/world/transport.h).
//
// Different from shared memory and gloo: NCCL does not compare calls, so different ones are not an
// error but a hang, which activity() shows; sums of bf16 are rounded as NCCL does; the order of
// additions is NCCL's.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/group.h"
#include "tutti/comm/rendezvous/store.h"

namespace tutti::comm {

bool has_nccl();  // this build

// Throws unsupported without NCCL or GPU, peer when the others do not come within the timeout.
// `device`: the GPU of this rank on its host. Calls take CUDA streams
// (engine/device_stream.h).
std::unique_ptr<Group> make_nccl_group(GroupInfo info, std::shared_ptr<Store> store,
                                       const std::string& prefix, int device,
                                       double timeout_seconds);

}  // namespace tutti::comm
