// The page of a comparison: summary, factors, and the timeline of a typical run.
#pragma once

#include "tutti/mlperf/compare.h"
#include "tutti/report/page.h"

namespace tutti::mlperf {

report::Page comparison_page(const Comparison& comparison);

}  // namespace tutti::mlperf
