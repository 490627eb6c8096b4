// What a reader takes for one character: Unicode's extended grapheme clusters (UAX 29,
// version 15.0), with the properties of ICU's tables.
#pragma once

#include <cstddef>
#include <string_view>

namespace tutti::data {

// Bytes of the cluster that starts at `at` < text.size(), which is where one starts. A byte that is
// not UTF-8 is one for itself.
size_t grapheme_bytes(std::string_view text, size_t at);

}  // namespace tutti::data
