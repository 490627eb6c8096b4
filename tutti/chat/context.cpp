#include "tutti/chat/context.h"

namespace tutti::chat {

const Value* ArgumentReader::next(const char* name) {
  used_.resize(arguments_.named.size());
  if (at_ < arguments_.positional.size()) return &arguments_.positional[at_++];
  for (size_t i = 0; i < arguments_.named.size(); ++i) {
    if (arguments_.named[i].first != name) continue;
    used_[i] = true;
    return &arguments_.named[i].second;
  }
  return nullptr;
}

const Value& ArgumentReader::required(const char* name) {
  const Value* value = next(name);
  if (value == nullptr) context_.refuse("'{}' requires the argument '{}'", callee_, name);
  return *value;
}

bool ArgumentReader::flag(const char* name, bool fallback) {
  const Value* value = next(name);
  return value == nullptr ? fallback : is_true(*value);
}

std::optional<int64_t> ArgumentReader::integer(const char* name) {
  const Value* value = next(name);
  if (value == nullptr || value->is_none()) return std::nullopt;
  if (const auto number = value->integer()) return number;
  context_.refuse("the argument '{}' of '{}' is of type {}, not an integer", name, callee_,
                  type_name(*value));
}

std::optional<std::string> ArgumentReader::text(const char* name) {
  const Value* value = next(name);
  if (value == nullptr || value->is_none()) return std::nullopt;
  if (const Text* text = value->text()) return text->bytes;
  context_.refuse("the argument '{}' of '{}' is of type {}, not a string", name, callee_,
                  type_name(*value));
}

std::string ArgumentReader::required_text(const char* name) {
  const auto value = text(name);
  if (!value) context_.refuse("'{}' requires the argument '{}'", callee_, name);
  return *value;
}

void ArgumentReader::done() {
  used_.resize(arguments_.named.size());
  if (at_ < arguments_.positional.size()) {
    context_.refuse("'{}' accepts at most {} arguments, not {}", callee_, at_,
                    arguments_.positional.size());
  }
  for (size_t i = 0; i < used_.size(); ++i) {
    if (used_[i]) continue;
    context_.refuse("'{}' has no argument '{}'", callee_, arguments_.named[i].first);
  }
}

}  // namespace tutti::chat
