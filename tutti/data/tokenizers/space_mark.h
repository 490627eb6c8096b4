// U+2581, which stands for a space in vocabularies of SentencePiece's kind.
#pragma once

#include <string_view>

namespace tutti::data {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

}  // namespace tutti::data
