#include "tutti/data/prepare/conversation.h"

#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::data {
namespace {

std::string template_path(FileSystem& files, const std::string& path,
                          const std::string& tokenizer) {
  if (path != "tokenizer") return path;
  if (tokenizer == "byte" || tokenizer == "char") {
    fail(ErrorKind::usage,
         "--chat-template tokenizer: the tokenizer '{}' has no template; name a .jinja file",
         tokenizer);
  }
  return files.is_directory(tokenizer) ? tokenizer : parent_path(tokenizer);
}

const Json& member_of(const Json& line, const char* key, bool is_list,
                      const std::function<std::string()>& where) {
  static const Json absent = nullptr;
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return absent;
  if (is_list ? found->is_array() : found->is_object()) return *found;
  fail(ErrorKind::corrupt, "{}: '{}' is {}, not of type {}", where(), key,
       is_list ? "a list" : "an object", found->type_name());
}

}  // namespace

ConversationWriter::ConversationWriter(FileSystem& files, const std::string& path,
                                       const std::string& tokenizer, std::string messages_key,
                                       chat::Answers answers)
    : template_(chat::load_chat_template(files, template_path(files, path, tokenizer))),
      messages_key_(std::move(messages_key)),
      answers_(answers) {}

WrittenConversation ConversationWriter::write(const Json& line,
                                              const std::function<std::string()>& where) const {
  const auto messages = line.is_object() ? line.find(messages_key_) : line.end();
  if (!line.is_object() || messages == line.end() || !messages->is_array() || messages->empty()) {
    fail(ErrorKind::corrupt,
         "{}: each line is an object with a list of messages under the key '{}'", where(),
         messages_key_);
  }
  chat::Conversation conversation;
  conversation.messages = *messages;
  conversation.tools = member_of(line, "tools", true, where);
  conversation.documents = member_of(line, "documents", true, where);
  const Json& variables = member_of(line, "chat_template_kwargs", false, where);
  if (variables.is_object()) conversation.variables = variables;
  try {
    chat::Rendered rendered = template_.render(conversation);
    std::vector<chat::ByteRange> answers = template_.find_answers(conversation, rendered, answers_);
    return {std::move(rendered.text), std::move(answers)};
  } catch (const Error& error) {
    const bool unsupported = error.kind() == ErrorKind::unsupported;
    fail(unsupported ? ErrorKind::unsupported : ErrorKind::corrupt, "{}: {}", where(),
         printable(error.what()));
  }
}

}  // namespace tutti::data
