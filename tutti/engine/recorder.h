// Records of the operations that a step executed, taken where a library or kernel gets its pointers
// and dimensions. Tests check that they equal what spec::Program x spec::Schedule describes; traces
// and the planner's calibration read them too.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tutti::engine {

inline constexpr int kMaxOpDims = 6;

// `op` is the name in ops.h, where each operation states the meaning of its dims.
struct OpRecord {
  const char* op = "";
  std::array<int64_t, kMaxOpDims> dims{};
  double flops = 0;  // multiply-add = 2; 0 for operations that only move data
  double bytes = 0;  // every operand read once, every result written once (accumulated: both)
  double begin_seconds = 0;  // monotonic clock
  double end_seconds = 0;
};

class Recorder {
 public:
  void add(const OpRecord& record) { records_.push_back(record); }
  const std::vector<OpRecord>& records() const { return records_; }
  void clear() { records_.clear(); }

 private:
  std::vector<OpRecord> records_;
};

}  // namespace tutti::engine
