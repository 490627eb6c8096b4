// Methods of strings, dicts and lists. Python's methods that modify a value are refused, as in
// transformers; methods that are not implemented are refused by name when they are called.
#pragma once

#include <optional>
#include <string>

#include "tutti/chat/context.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

// `object.name` as a function, if a value of this type has it. `context` must outlive the function.
std::optional<Value> find_method(Context& context, const Value& object, const std::string& name);

}  // namespace tutti::chat
