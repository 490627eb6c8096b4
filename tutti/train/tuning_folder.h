// Where measured choices of algorithms are kept between runs (engine/backend.h).
#pragma once

#include <string>

namespace tutti::train {

// $TUTTI_TUNING, else tutti in $XDG_CACHE_HOME or in .cache of $HOME; empty where none is set.
std::string tuning_folder();

}  // namespace tutti::train
