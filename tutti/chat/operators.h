// Operators and subscripts: Python's rules, and Jinja's for undefined values. Errors are usage,
// naming the template's line.
#pragma once

#include <optional>
#include <string>

#include "tutti/chat/context.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

Value binary(Context& context, const std::string& symbol, const Value& a, const Value& b);
bool compare(Context& context, const std::string& symbol, const Value& a, const Value& b);
// Whether a < b.
bool is_less(Context& context, const Value& a, const Value& b);
bool contains(Context& context, const Value& container, const Value& item);

Value get_item(Context& context, const Value& object, const Value& key);
// object.name; methods before members.
Value get_attribute(Context& context, const Value& object, const std::string& name);
Value get_slice(Context& context, const Value& object, const Value& start, const Value& stop,
                const Value& step);

Value make_undefined(std::string what);
// Like str(); refuses functions and the like.
Text text_of(Context& context, const Value& value);
std::shared_ptr<const Sequence> items_of(Context& context, const Value& value);
int64_t length_of(Context& context, const Value& value);
Value make_list(Context& context, std::vector<Value> items, SequenceKind kind = SequenceKind::list);
Value make_text(Context& context, Text text);

}  // namespace tutti::chat
