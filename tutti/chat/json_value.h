// JSON as values of a template.
#pragma once

#include "tutti/base/json.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

// All text of it, keys too, is of `origin`. Throws usage for what is nested deeper than
// kMostNesting or has integers beyond 64 bits.
Value value_from_json(const Json& json, Origin origin);

}  // namespace tutti::chat
