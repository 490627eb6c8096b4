// Converts JSON to values of a template.
#pragma once

#include "tutti/base/json.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

// All its text, including keys, is of `origin`. Throws usage for nesting deeper than kMostNesting
// or integers beyond 64 bits.
Value value_from_json(const Json& json, Origin origin);

}  // namespace tutti::chat
