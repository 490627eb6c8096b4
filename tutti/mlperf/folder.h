// Where the logs of results are in a folder.
//
// A result is a folder with result_N.txt files, one per run. Understood are such a folder, any
// folder above some, and submission trees: results/<system>/<benchmark>/result_N.txt beside
// systems/<system>.json. Published logs may also lie as <system>/<benchmark>/result_N.txt with
// <system>/system.json.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/mlperf/finding.h"

namespace tutti::mlperf {

struct ResultFolder {
  std::string path;
  std::vector<std::string> logs;       // paths of result_N.txt, by N
  std::vector<std::string> strangers;  // names of other files
  std::string benchmark;               // name of the folder
  std::string system_file;             // system description; "" when none was found
  std::string system_wanted;           // where it should be; "" when the layout does not define one
  std::string scaling_file;            // scaling.json; "" when there is none
};

// All results at or below `path`, by path. Throws not_found when there is no `path`.
std::vector<ResultFolder> find_results(FileSystem& files, const std::string& path);

// Descriptions in systems/ of the submission trees at or below `path`, by path.
std::vector<std::string> find_system_files(FileSystem& files, const std::string& path);

// "…/result_7.txt": 7; -1 when the name is another.
int result_number(const std::string& path);

}  // namespace tutti::mlperf
