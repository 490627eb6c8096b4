// One MLPerf log record: the JSON object behind ":::MLLOG " in a line of a log.
//
//   :::MLLOG {"namespace": "", "time_ms": 1714897740668, "event_type": "INTERVAL_START",
//             "key": "run_start", "value": null, "metadata": {"file": "train.py", "lineno": 145}}
//
// Beyond JSON, logs of Python programs hold NaN and infinities, integers of any size and bytes that
// are not UTF-8; they are read as the numbers they mean and as Latin-1. Format:
// mlcommons/logging, mllog.py.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/json.h"

namespace tutti::mlperf {

inline constexpr std::string_view kRecordPrefix = ":::MLLOG ";
inline constexpr size_t kLongestRecordBytes = size_t{1} << 20U;
inline constexpr int kDeepestNesting = 64;

struct Record {
  int64_t line = 0;    // in the file, from 1
  double time_ms = 0;  // since 1970-01-01 UTC, finite
  std::string key;
  Json value;                // numbers may be NaN or infinite
  Json metadata;             // an object
  bool no_metadata = false;  // what was logged as metadata is not an object: read as an empty one
  bool latin1 = false;       // had bytes that are not UTF-8
};

// Reads the text behind the prefix into `record`, all but its line. Returns what is wrong, or "".
// Takes time and memory proportional to the text, whatever it holds.
std::string parse_record(std::string_view text, Record& record);

}  // namespace tutti::mlperf
