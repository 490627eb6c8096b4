// A finding of a compliance check at one location in one file.
//
// Rules, by the first part of their name: log (the file itself), key (records of one key), order,
// target, benchmark, seed, runs (the set of result files), rcp (convergence against the reference),
// system (system description), layout (folders). docs/mlperf.md lists them all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::mlperf {

struct Finding {
  std::string file;
  int64_t line = 0;  // 0: the file as a whole
  std::string rule;  // "key.missing"
  std::string message;
  std::string remedy;
  bool warning = false;  // worth knowing; does not make a result non-compliant
};

bool compliant(const std::vector<Finding>& findings);  // no finding but warnings
Json to_json(const Finding& finding);
std::string format_finding(const Finding& finding);  // "file:line: rule: message; remedy"

// Equal findings at several locations are merged: a line for each message, with the files and lines
// it is about, the first few of them named. Errors before warnings, else in order.
std::string format_findings(const std::vector<Finding>& findings);

// Collects the findings of one file; of one rule only the first few are kept, and counted.
class Findings {
 public:
  explicit Findings(std::string file) : file_(std::move(file)) {}
  void error(int64_t line, std::string_view rule, std::string message, std::string remedy);
  void warning(int64_t line, std::string_view rule, std::string message, std::string remedy);

  // The findings in the order they were made, with a note for each rule that had more.
  std::vector<Finding> take();

 private:
  void add(Finding finding);

  struct Count {
    std::string rule;
    bool warning = false;
    int64_t seen = 0;
  };
  std::string file_;
  std::vector<Finding> findings_;
  std::vector<Count> counts_;
};

}  // namespace tutti::mlperf
