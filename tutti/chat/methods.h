// Methods of strings, dicts and lists. Those of Python that change a value are refused, as
// transformers does; those that are not here are refused by name when they are called.
#pragma once

#include <optional>
#include <string>

#include "tutti/chat/context.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

// `object.name` as a function, where a value of this type has it. `context` outlives the function.
std::optional<Value> find_method(Context& context, const Value& object, const std::string& name);

}  // namespace tutti::chat
