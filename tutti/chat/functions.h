// The functions that every template has: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tutti/chat/context.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

// A function that every template has. `make_namespace` keeps what it makes.
std::optional<Value> find_function(
    Context& context, const std::string& name,
    const std::function<std::shared_ptr<Namespace>()>& make_namespace);

}  // namespace tutti::chat
