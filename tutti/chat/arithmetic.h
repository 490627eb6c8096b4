// Arithmetic: Python's rules on 64-bit integers and doubles; booleans are 0 and 1. Overflow and
// division by zero are errors.
#pragma once

#include <string>

#include "tutti/chat/context.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

// Operands are numbers; symbol: + - * / // % **
Value arithmetic(Context& context, const std::string& symbol, const Value& a, const Value& b);
Value negative(Context& context, const Value& value);

}  // namespace tutti::chat
