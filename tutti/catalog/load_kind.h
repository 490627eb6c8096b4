// Reading the entries of one kind from the folders of a catalog.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/catalog/entry.h"

namespace tutti::catalog {

// Entries of one kind by name, from FOLDER/SUBFOLDER of all folders; those of later folders replace
// earlier ones. Throws usage naming the file for an entry of another kind, and for two of one name
// in a folder.
std::map<std::string, Entry> load_kind(FileSystem& files, const std::vector<std::string>& folders,
                                       const std::string& subfolder, const std::string& kind);

}  // namespace tutti::catalog
