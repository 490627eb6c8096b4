#include "tutti/comm/testing/on_host/exchange.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tutti/base/dtype.h"

namespace tutti::comm::on_host {
namespace {

size_t item_bytes(ncclDataType_t type) {
  return type == ncclInt64 ? 8 : type == ncclBfloat16 ? 2 : 4;
}

float value(float x) { return x; }
float value(bf16 x) { return to_f32(x); }
template <typename T>
T value(T x) {
  return x;
}
template <typename T, typename Wide>
T rounded(Wide x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(x);
  } else {
    return x;
  }
}

// Of `count` items from `first` on, in the ranks' order, rounded once.
template <typename T>
void reduce(const Exchange& exchange, size_t first, size_t count, void* out) {
  std::vector<T> results(count);
  for (size_t i = 0; i < count; ++i) {
    const auto of = [&](const Part& part) {
      return value(static_cast<const T*>(part.send)[first + i]);
    };
    auto result = of(exchange.parts[0]);
    for (size_t rank = 1; rank < exchange.parts.size(); ++rank) {
      const auto x = of(exchange.parts[rank]);
      result = exchange.shape.reduce == ncclMax ? std::max(result, x) : result + x;
    }
    results[i] = rounded<T>(result);
  }
  std::memcpy(out, results.data(), count * sizeof(T));
}

void reduce(const Exchange& exchange, size_t first, size_t count, void* out) {
  switch (exchange.shape.type) {
    case ncclFloat32: return reduce<float>(exchange, first, count, out);
    case ncclBfloat16: return reduce<bf16>(exchange, first, count, out);
    case ncclInt32: return reduce<int32_t>(exchange, first, count, out);
    case ncclInt64: return reduce<int64_t>(exchange, first, count, out);
  }
}

void move_data(const Exchange& exchange) {
  const Shape& shape = exchange.shape;
  const size_t bytes = shape.count * item_bytes(shape.type);
  if (bytes == 0) return;
  const std::vector<Part>& parts = exchange.parts;
  switch (shape.kind) {
    case Kind::all_reduce: {
      std::vector<char> result(bytes);
      reduce(exchange, 0, shape.count, result.data());
      for (const Part& part : parts) std::memcpy(part.receive, result.data(), bytes);
      return;
    }
    case Kind::reduce_scatter: {
      std::vector<char> result(bytes * parts.size());
      reduce(exchange, 0, shape.count * parts.size(), result.data());
      for (size_t rank = 0; rank < parts.size(); ++rank) {
        std::memcpy(parts[rank].receive, result.data() + rank * bytes, bytes);
      }
      return;
    }
    case Kind::all_gather:
      for (const Part& part : parts) {
        for (size_t rank = 0; rank < parts.size(); ++rank) {
          char* const to = static_cast<char*>(part.receive) + rank * bytes;
          if (to != parts[rank].send) std::memcpy(to, parts[rank].send, bytes);
        }
      }
      return;
    case Kind::broadcast: {
      const void* const from = parts[static_cast<size_t>(shape.root)].send;
      for (const Part& part : parts) {
        if (part.receive != from) std::memcpy(part.receive, from, bytes);
      }
      return;
    }
    case Kind::message: std::memcpy(parts[1].receive, parts[0].send, bytes); return;
  }
}

}  // namespace

const char* kind_name(Kind kind) {
  constexpr const char* kNames[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                    "message"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_complete(Exchange& exchange) {
  if (exchange.is_done) return true;
  const std::vector<Part>& parts = exchange.parts;
  if (!std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.has_come; })) {
    return false;
  }
  move_data(exchange);
  exchange.is_done = true;
  return true;
}

}  // namespace tutti::comm::on_host
