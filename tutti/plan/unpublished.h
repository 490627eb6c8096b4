// What a measurement leaves open (Measurement::free), as the recipes that it may have been: sizes
// of the micro-batch, virtual stages, whole layouts. Only possible ones; the recipe alone when
// nothing is open.
#pragma once

#include <vector>

#include "tutti/plan/measurement.h"

namespace tutti::plan {

std::vector<spec::Recipe> unpublished_choices(const Measurement& row);

}  // namespace tutti::plan
