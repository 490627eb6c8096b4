// Parses tokens to statements: the part of Jinja's grammar that chat templates use. The rest
// (include, import, extends, block, call, recursive loops, * and ** in calls) is refused by name.
#pragma once

#include <string>
#include <string_view>

#include "tutti/chat/syntax.h"

namespace tutti::chat {

// Deepest nesting of expressions and of statements.
inline constexpr int kMostSyntaxDepth = 250;

// Throws usage or unsupported naming `origin` and the line.
Block parse_template(std::string_view source, const std::string& origin);

}  // namespace tutti::chat
