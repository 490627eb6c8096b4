// Filters over the items of a list, and the size of the output of 'tojson'.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/chat/context.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

Value join_items(Context&, const Value& operand, const std::string& name, Arguments&);
Value take_end(Context&, const Value& operand, const std::string& name, Arguments&);  // first, last
Value as_list(Context&, const Value& operand, const std::string& name, Arguments&);
Value dict_items(Context&, const Value& operand, const std::string& name, Arguments&);
Value map_items(Context&, const Value& operand, const std::string& name, Arguments&);
// select, reject, selectattr, rejectattr
Value select_items(Context&, const Value& operand, const std::string& name, Arguments&);
Value reverse_items(Context&, const Value& operand, const std::string& name, Arguments&);
Value sort_items(Context&, const Value& operand, const std::string& name, Arguments&);
Value sort_dict(Context&, const Value& operand, const std::string& name, Arguments&);
Value unique_items(Context&, const Value& operand, const std::string& name, Arguments&);
Value sum_items(Context&, const Value& operand, const std::string& name, Arguments&);
Value extreme_item(Context&, const Value& operand, const std::string& name,
                   Arguments&);  // min, max

// An upper bound of the bytes of `value` as JSON; every visited member counts as a step.
int64_t json_bytes(Context& context, const Value& value, const JsonStyle& style, int depth);

}  // namespace tutti::chat
