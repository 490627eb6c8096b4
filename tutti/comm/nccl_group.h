// The group of ranks that have a GPU each, through NCCL. Where the build found no CUDA toolkit with
// NCCL, nccl_stub.cpp stands in.
//
// Calls are enqueued on streams of the group's own, which wait for the caller's stream by event,
// and the caller's stream for theirs: nothing blocks the host but starting. Collectives have one
// communicator; each peer has one per direction for messages, made with the first of them
// (nccl_messages.h), so that directions and peers do not wait for each other. A thread starts
// messages whose peer was not there yet and watches communicators and the store, so that a failure
// or abort anywhere ends the work on every GPU (ncclCommAbort).
//
// Operands are the device's: what hosts tell each other goes through another group (transport.h).
//
// Different from shared memory and gloo: NCCL does not compare calls, so different ones are not an
// error but a hang, which activity() shows; sums of bf16 are rounded as NCCL does; the order of
// additions is NCCL's.
#pragma once

#include <memory>
#include <string>

#include "tutti/comm/group.h"
#include "tutti/comm/store.h"

namespace tutti::comm {

bool has_nccl();  // this build

// Throws unsupported without NCCL or GPU, peer when the others do not come within the timeout.
// `device`: the GPU of this rank on its host. Calls take CUDA streams
// (engine/device_stream.h).
std::unique_ptr<Group> make_nccl_group(GroupInfo info, std::shared_ptr<Store> store,
                                       const std::string& prefix, int device,
                                       double timeout_seconds);

}  // namespace tutti::comm
