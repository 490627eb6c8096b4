#include "tutti/comm/collectives/call.h"

#include <fmt/format.h>

namespace tutti::comm {

const char* call_name(CallKind kind) {
  switch (kind) {
    case CallKind::none: return "nothing";
    case CallKind::all_reduce: return "all_reduce";
    case CallKind::reduce_scatter: return "reduce_scatter";
    case CallKind::all_gather: return "all_gather";
    case CallKind::all_to_all: return "all_to_all";
    case CallKind::broadcast: return "broadcast";
    case CallKind::barrier: return "barrier";
    case CallKind::send: return "send";
    case CallKind::receive: return "receive";
  }
  return "unknown";
}

std::string call_text(const CallShape& shape) {
  const char* name = call_name(shape.kind);
  const std::string data = fmt::format("{} {}", shape.count, dtype_name(shape.dtype));
  switch (shape.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce_scatter:
      return fmt::format("{}({}, {})", name, shape.reduce == Reduce::sum ? "sum" : "max", data);
    case CallKind::all_gather: return fmt::format("{}({})", name, data);
    case CallKind::all_to_all: return fmt::format("{}({})", name, dtype_name(shape.dtype));
    case CallKind::broadcast: return fmt::format("{}({} from {})", name, data, shape.peer);
    case CallKind::send: return fmt::format("{}({} to {})", name, data, shape.peer);
    case CallKind::receive: return fmt::format("{}({} from {})", name, data, shape.peer);
    default: return name;
  }
}

}  // namespace tutti::comm
