// Where machines stand when nobody says: of the catalog's sites.
#pragma once

namespace tutti::cli {

inline constexpr const char* kAssumedSite = "us-average";

}  // namespace tutti::cli
