// What ranks exchange through NCCL on the host (nccl.cpp), and what each of them has afterwards.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::comm::on_host {

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, message };
const char* kind_name(Kind kind);  // "all-reduce"

struct Shape {
  Kind kind = Kind::message;
  size_t count = 0;  // as NCCL counts
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduce = ncclSum;
  int root = 0;
  bool operator==(const Shape&) const = default;
};

// Of a rank in an exchange.
struct Part {
  bool is_given = false;  // as work number `position` of `stream`
  bool has_come = false;  // the stream has
  cudaStream_t stream = nullptr;
  uint64_t position = 0;
  const void* send = nullptr;
  void* receive = nullptr;
};

// A collective; or a message, whose sender has part 0.
struct Exchange {
  Shape shape;
  std::vector<Part> parts;
  bool is_done = false;
};

// Whether every part has what it receives: it gets that when the streams of all have come. Sums are
// in the ranks' order and rounded once.
bool is_complete(Exchange& exchange);

}  // namespace tutti::comm::on_host
