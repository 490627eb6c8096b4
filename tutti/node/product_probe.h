// Matrix products of the engine as a test of a node: their speed, and whether every result is
// correct.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/engine/stream.h"

namespace tutti::node {

struct ProductProbe {
  int64_t size = 0;             // of C[s,s] = A[s,s] B[s,s]; C is f32
  std::vector<double> seconds;  // of each product after the first
  // Products whose bits differ from the first one's (the same operands give the same bits), and
  // entries of the first one, of 64 drawn, that are off by more than rounding allows.
  int64_t changed = 0;
  int64_t wrong = 0;

  // Of the product that a tenth of all are faster than: what the node does without interference it.
  double flops_per_second() const;
};

// For about `seconds`, at least ten products. The size grows with the stream's threads.
ProductProbe probe_product(engine::Stream& stream, DType dtype, double seconds);

}  // namespace tutti::node
