// Published benchmark results, read from catalog/published/*.csv and from files that users import.
//
// A file is CSV with a header; lines that start with '#' are comments. Needed columns: benchmark,
// accelerator, num_accelerators, minutes, samples_to_target, source; known ones beside them: round,
// submitter, system, global_batch, raw_minutes (as logged, before scaling; default minutes),
// precision, compliant ("yes", or "no"; empty: not said). Others are left alone. Errors are usage
// errors that name file, line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"

namespace tutti::catalog {

struct PublishedResult {
  std::string round;  // "v4.1"
  std::string benchmark;
  std::string submitter;
  std::string system;
  std::string accelerator;
  int64_t accelerators = 0;
  int64_t global_batch_samples = 0;  // 0: not known
  std::string precision;
  double minutes = 0;
  double raw_minutes = 0;
  double samples_to_target = 0;
  std::string source;
  bool compliant = false;  // the row says that its logs were checked and comply
};

std::vector<PublishedResult> parse_published(std::string_view csv, const std::string& origin);

// Every *.csv of the folders that exist, in order.
std::vector<PublishedResult> load_published(FileSystem& files,
                                            const std::vector<std::string>& folders);

// A file that parse_published reads.
std::string format_published(const std::vector<PublishedResult>& results);

}  // namespace tutti::catalog
