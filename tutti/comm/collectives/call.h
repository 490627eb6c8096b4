// One call of a collective or transfer as plain values, for comparison between ranks and for
// messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tutti/base/dtype.h"
#include "tutti/engine/reduce.h"

namespace tutti::comm {

using engine::Reduce;

enum class CallKind : uint8_t {
  none,
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  send,
  receive,
};
const char* call_name(CallKind kind);
inline bool is_transfer(CallKind kind) {
  return kind == CallKind::send || kind == CallKind::receive;
}

// What every rank must agree on. Counts are in elements.
struct CallShape {
  CallKind kind = CallKind::none;
  DType dtype = DType::f32;
  Reduce reduce = Reduce::sum;  // of all_reduce and reduce_scatter
  int32_t peer = -1;            // root of broadcast; the other rank of a transfer
  // all_reduce, broadcast, transfers: the buffer; reduce_scatter: of the result; all_gather: of
  // what a rank gives; all_to_all: 0, ranks give different counts.
  int64_t count = 0;

  bool operator==(const CallShape&) const = default;
};

// "all_reduce(sum, 1024 f32)", "broadcast(7 i32 from 2)", "send(8 bf16 to 1)".
std::string call_text(const CallShape& shape);

struct Call {
  CallShape shape;
  const void* send = nullptr;
  void* receive = nullptr;
  // of all_to_all, one per rank
  std::span<const int64_t> send_counts = {};
  std::span<const int64_t> receive_counts = {};
};

}  // namespace tutti::comm
