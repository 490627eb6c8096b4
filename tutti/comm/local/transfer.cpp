// Messages between two ranks of a local group. A message is one piece that the receiver fetches
// from the sender's buffer, when it can reach it and the message is large, or a series of pieces
// through the channel's memory, of which two may be on their way: a message that fits into one does
// not wait for its receiver.
#include <algorithm>
#include <cstring>

#include "tutti/comm/local/group.h"

namespace tutti::comm {

bool LocalGroup::step_send(int peer) {
  Message& message = sends_[static_cast<size_t>(peer)];
  Channel& channel = block_.channel(rank(), peer);
  bool moved = false;
  while (!message.line.empty()) {
    const Call& call = queue_.at(message.line.front());
    const CallShape& shape = call.shape;
    const int64_t item = dtype_bytes(shape.dtype);
    if (message.direct_piece > 0) {
      if (channel.taken.load() < message.direct_piece) return moved;
      end_message(message);
      moved = true;
      continue;
    }
    const uint64_t posted = channel.posted.load();
    if (posted - channel.taken.load() >= 2) return moved;
    Piece& piece = channel.pieces[posted % 2];
    piece.shape = shape;
    piece.begin = message.moved;
    piece.source = {};
    if (shape.count * item > ControlBlock::kPieceBytes) {
      piece.source = memory_->locate(call.send, shape.count * item);
    }
    if (piece.source.arena != Location::kUnreachable) {
      piece.count = shape.count;
      message.direct_piece = posted + 1;
    } else {
      piece.count = std::min(shape.count - message.moved, ControlBlock::kPieceBytes / item);
      if (piece.count > 0) {
        std::memcpy(block_.piece_data(rank(), peer, posted),
                    static_cast<const char*>(call.send) + message.moved * item,
                    static_cast<size_t>(piece.count * item));
      }
      message.moved += piece.count;
    }
    channel.posted.store(posted + 1);
    block_.ring(peer);
    moved = true;
    if (message.direct_piece == 0 && message.moved == shape.count) end_message(message);
  }
  return moved;
}

bool LocalGroup::step_receive(int peer) {
  Message& message = receives_[static_cast<size_t>(peer)];
  Channel& channel = block_.channel(peer, rank());
  bool moved = false;
  while (!message.line.empty()) {
    const uint64_t taken = channel.taken.load();
    if (channel.posted.load() == taken) return moved;
    const Call& call = queue_.at(message.line.front());
    const CallShape& shape = call.shape;
    const int64_t item = dtype_bytes(shape.dtype);
    const Piece& piece = channel.pieces[taken % 2];
    if (piece.shape.dtype != shape.dtype || piece.shape.count != shape.count) {
      const auto world_rank = [&](int rank) { return info().members[static_cast<size_t>(rank)]; };
      block_.fail(fmt::format(
          "group {}: ranks ask for different things in message {}: rank {} {}, rank {} {}", name(),
          message.messages + 1, world_rank(peer), call_text(piece.shape), world_rank(rank()),
          call_text(shape)));
      return moved;
    }
    auto* to = static_cast<char*>(call.receive) + piece.begin * item;
    const auto bytes = static_cast<size_t>(piece.count * item);
    if (piece.source.arena != Location::kUnreachable) {
      const auto fetch = [&] {
        std::memcpy(to, memory_->reach(local_ranks_[static_cast<size_t>(peer)], piece.source),
                    bytes);
      };
      if (!with_peer_buffers(fetch)) return moved;
    } else if (bytes > 0) {
      std::memcpy(to, block_.piece_data(peer, rank(), taken), bytes);
    }
    message.moved += piece.count;
    const bool last = message.moved == shape.count;
    channel.taken.store(taken + 1);
    block_.ring(peer);
    moved = true;
    if (last) end_message(message);
  }
  return moved;
}

}  // namespace tutti::comm
