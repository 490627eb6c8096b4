// The page of a run as a file (report.cpp).
#pragma once

#include <string>

#include "tutti/base/file.h"

namespace tutti::cli {

std::string report_path(const std::string& run_folder);  // RUN/report.html

// Reads the run's events and writes its page; returns the path. Throws what reading and writing
// throw.
std::string write_run_page(FileSystem& files, const std::string& run_folder);

}  // namespace tutti::cli
