// Folder of measured algorithm choices, kept between runs (engine/backend.h).
#pragma once

#include <string>

namespace tutti::train {

// $TUTTI_TUNING, else tutti in $XDG_CACHE_HOME or in .cache of $HOME, or of the home that the
// system knows of this user: one for all ranks of a machine. Empty where there is none.
std::string tuning_folder();

}  // namespace tutti::train
