// The page of one run: RUN/report.html.
#pragma once

#include <string>

#include "tutti/report/page.h"
#include "tutti/report/run_summary.h"

namespace tutti::report {

// `made_wall_seconds` is the time shown as that of the page.
Page run_page(const RunData& run, const RunSummary& summary, double made_wall_seconds);

}  // namespace tutti::report
