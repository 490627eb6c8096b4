// The page of a comparison: the sentence, the factors, and where the time of a typical run went.
#pragma once

#include "tutti/mlperf/compare.h"
#include "tutti/report/page.h"

namespace tutti::mlperf {

report::Page comparison_page(const Comparison& comparison);

}  // namespace tutti::mlperf
