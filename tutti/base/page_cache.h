// Drops the page cache, for measurements that must start cold. Not part of FileSystem, since it
// changes nothing that a file holds.
#pragma once

#include <string>

namespace tutti {

// Makes the system forget all clean pages of all files, after writing back the dirty ones. Needs
// the right to (on Linux root, outside of most containers); false where it lacks or there is no
// such thing.
bool drop_page_cache();

// The same for one file; false where it cannot be read or the system refuses. Pages that a process
// has mapped stay.
bool drop_cached_file(const std::string& path);

}  // namespace tutti
