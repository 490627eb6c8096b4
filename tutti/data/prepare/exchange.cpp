#include "tutti/data/prepare/exchange.h"

#include <string_view>

#include "tutti/base/error.h"

namespace tutti::data {
namespace {

constexpr std::string_view kRole = "{role}";
constexpr std::string_view kContent = "{content}";

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

const std::string& text_of(const Json& object, std::string_view key, const char* what,
                           const std::function<std::string()>& where) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_string()) {
    fail(ErrorKind::corrupt, "{}: {} is an object with text under the key '{}'; this one {}",
         where(), what, key,
         !object.is_object()     ? std::string("is of type ") + object.type_name()
         : found == object.end() ? "lacks it"
                                 : std::string("has there a value of type ") + found->type_name());
  }
  return found->get_ref<const std::string&>();
}

// A message as the template writes it, before and from its content.
Exchange write_message(const std::string& role, const std::string& content,
                       const std::string& message_template) {
  const std::string text = replaced(message_template, "\\n", "\n");
  const size_t at = text.find(kContent);
  return {replaced(text.substr(0, at), kRole, role),
          content + replaced(text.substr(at + kContent.size()), kRole, role)};
}

Exchange read_messages(const Json& list, const ExchangeKeys& keys,
                       const std::function<std::string()>& where) {
  if (!list.is_array() || list.empty()) {
    fail(ErrorKind::corrupt, "{}: '{}' is a list of messages, with one at least; this one is {}",
         where(), keys.messages,
         list.is_array() ? "empty" : std::string("of type ") + list.type_name());
  }
  Exchange all;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string& role = text_of(list[i], "role", "a message", where);
    const std::string& content = text_of(list[i], "content", "a message", where);
    Exchange message = write_message(role, content, keys.message_template);
    all.prompt += message.prompt;
    if (i + 1 < list.size()) {
      all.prompt += message.completion;
      continue;
    }
    if (role != "assistant") {
      fail(ErrorKind::corrupt,
           "{}: the last message is of role '{}'; it is the assistant's, which is what is learnt",
           where(), role);
    }
    if (!content.empty()) all.completion = std::move(message.completion);
  }
  return all;
}

}  // namespace

void check_exchange_keys(const ExchangeKeys& keys) {
  if (keys.prompt.empty() != keys.completion.empty()) {
    fail(ErrorKind::usage,
         "prompts and completions come together: give the keys of both, such as 'prompt' and "
         "'completion'");
  }
  if (!keys.messages.empty() && !keys.prompt.empty()) {
    fail(ErrorKind::usage,
         "keys of both messages ('{}') and prompts ('{}') are given; lines have one or the other",
         keys.messages, keys.prompt);
  }
  const size_t at = keys.message_template.find(kContent);
  if (at == std::string::npos ||
      keys.message_template.find(kContent, at + 1) != std::string::npos) {
    fail(ErrorKind::usage,
         "the message template '{}' is without {{content}}, or has it twice; write it such as "
         "'{{role}}: {{content}}\\n'",
         keys.message_template);
  }
}

Exchange read_exchange(const Json& line, const ExchangeKeys& keys,
                       const std::function<std::string()>& where) {
  if (keys.messages.empty()) {
    return {text_of(line, keys.prompt, "each line", where),
            text_of(line, keys.completion, "each line", where)};
  }
  const auto found = line.is_object() ? line.find(keys.messages) : line.end();
  if (!line.is_object() || found == line.end()) {
    fail(ErrorKind::corrupt, "{}: each line is an object with messages under the key '{}'", where(),
         keys.messages);
  }
  return read_messages(*found, keys, where);
}

}  // namespace tutti::data
