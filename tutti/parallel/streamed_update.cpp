#include "tutti/parallel/streamed_update.h"

#include <algorithm>

#include "tutti/parallel/range.h"

namespace tutti::parallel {
namespace {

using Member = engine::Vector optim::AdamwState::*;
struct Array {
  const char* name;  // in the memory map
  Member member;
};
constexpr Array kArrays[] = {{"master", &optim::AdamwState::master},
                             {"moment1", &optim::AdamwState::moment1},
                             {"moment2", &optim::AdamwState::moment2}};
constexpr const char* kArena = "optimizer_buffers";
constexpr const char* kSlot = "buffer";

}  // namespace

StreamedUpdate::StreamedUpdate(const std::vector<OwnedSlice>& slices, const model::Memory& memory,
                               const engine::CopyQueues& queues)
    : out_(queues.out.get()), in_(queues.in.get()) {
  std::vector<Array> arrays;
  for (const Array& array : kArrays) {
    if (memory.has(kArena, kSlot, array.name)) arrays.push_back(array);
  }
  const auto buffer = [&](const Array& array) {
    const auto turn = static_cast<int64_t>(pieces_.size()) % spec::kOffloadBuffers;
    return memory.vector(kArena, kSlot, turn, array.name);
  };
  const int64_t room = memory.vector(kArena, kSlot, 0, "moment1").count;
  Piece piece;
  int64_t filled = 0;     // of the piece, downwards from the end of its buffer
  int64_t next_end = -1;  // in the shard, where the part before the piece would have to end
  const auto close = [&] {
    if (filled == 0) return;
    for (size_t i = 0; i < arrays.size(); ++i) {
      Copy& copy = piece.copies[i];
      copy.device = buffer(arrays[i]).as<float>() + (room - filled);
    }
    pieces_.push_back(std::move(piece));
    piece = {};
    filled = 0;
  };
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) {
    for (int64_t end = slice->shard.count; end > 0;) {
      if (filled == room || slice->shard.shard_first + end != next_end) close();
      const int64_t count = std::min(end, room - filled);
      const int64_t first = end - count;
      filled += count;
      Part part;
      part.ends = first == 0;
      part.state = slice->state;
      part.state.gradient = range(slice->state.gradient, first, count);
      part.state.master = range(slice->state.master, first, count);
      part.state.weights = range(slice->state.weights, first, count);
      part.state.segments = optim::cut_segments(slice->state.segments, first, count);
      piece.copies.resize(arrays.size());
      for (size_t i = 0; i < arrays.size(); ++i) {
        const engine::Vector host = range(slice->state.*arrays[i].member, first, count);
        part.state.*arrays[i].member = range(buffer(arrays[i]), room - filled, count);
        piece.copies[i].host = host.data;  // where the piece begins, as far as it goes
        piece.copies[i].bytes += host.bytes();
      }
      piece.parts.push_back(std::move(part));
      next_end = slice->shard.shard_first + first;
      end = first;
    }
  }
  close();
}

void StreamedUpdate::fetch(size_t turn) {
  for (const Copy& copy : pieces_[turn].copies) in_->copy(copy.device, copy.host, copy.bytes);
  in_->mark(point(turn % spec::kOffloadBuffers));
}

void StreamedUpdate::fetch_ahead() {
  in_->after_stream();
  for (size_t turn = 0; turn < std::min<size_t>(pieces_.size(), spec::kOffloadBuffers); ++turn) {
    fetch(turn);
  }
  fetched_ = true;
}

void StreamedUpdate::forget() {
  if (!fetched_) return;
  fetched_ = false;
  for (size_t turn = 0; turn < std::min<size_t>(pieces_.size(), spec::kOffloadBuffers); ++turn) {
    in_->stream_after(point(turn));
  }
}

void StreamedUpdate::update_slice(
    const std::function<void(const optim::AdamwState& state)>& update) {
  if (turn_ == 0 && part_ == 0) {
    if (!fetched_) fetch_ahead();
    fetched_ = false;
  }
  for (bool ended = false; !ended;) {
    const Piece& piece = pieces_[turn_];
    if (part_ == 0) in_->stream_after(point(turn_ % spec::kOffloadBuffers));
    const Part& part = piece.parts[part_++];
    update(part.state);
    ended = part.ends;
    if (part_ < piece.parts.size()) continue;
    leave(turn_++);
    part_ = 0;
  }
  if (turn_ < pieces_.size()) return;
  out_->stream_after(point((turn_ - 1) % spec::kOffloadBuffers));
  turn_ = 0;
}

void StreamedUpdate::leave(size_t turn) {
  const int at = point(turn % spec::kOffloadBuffers);
  out_->after_stream();
  for (const Copy& copy : pieces_[turn].copies) out_->copy(copy.host, copy.device, copy.bytes);
  out_->mark(at);
  if (turn + spec::kOffloadBuffers >= pieces_.size()) return;
  in_->after(*out_, at);
  fetch(turn + spec::kOffloadBuffers);
}

}  // namespace tutti::parallel
