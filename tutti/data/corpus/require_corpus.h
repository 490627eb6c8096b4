// A corpus that must be there, asked for by the names and sizes of its files alone: nothing of them
// is read, so an MLPerf run may ask before its clock starts.
#pragma once

#include <string>

#include "tutti/base/file.h"

namespace tutti::data {

// Throws not_found naming the files that are missing and what makes them.
void require_corpus(FileSystem& files, const std::string& prefix);

// Throws corrupt naming the file whose size cannot hold a token, or for the smallest index.
void require_tokens(FileSystem& files, const std::string& prefix);

}  // namespace tutti::data
