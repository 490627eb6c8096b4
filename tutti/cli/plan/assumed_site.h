// The default site of machines, from the catalog.
#pragma once

namespace tutti::cli {

inline constexpr const char* kAssumedSite = "us-average";

}  // namespace tutti::cli
