// Jinja tests: "is defined" and the like. Tests of Jinja that are not implemented are refused by
// name when they are applied.
#pragma once

#include <string>

#include "tutti/chat/context.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

bool apply_test(Context& context, const std::string& name, const Value& operand,
                Arguments& arguments);

}  // namespace tutti::chat
