// A line of JSON lines that is a conversation, written by a chat template (chat/conversation.h):
//
//   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", ...}, ...],
//    "tools": [...], "documents": [...], "chat_template_kwargs": {"enable_thinking": false}}
//
// Only messages must be there. Answers of the assistant are trained on; all else of the text is
// not. The template writes everything: nothing is put before or behind it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/chat/conversation.h"

namespace tutti::data {

struct WrittenConversation {
  chat::Text text;
  std::vector<chat::ByteRange> answers;  // in order, apart from each other
};

class ConversationWriter {
 public:
  // `path`: as of chat::load_chat_template, or "tokenizer" for the one beside `tokenizer`, which is
  // the path of a tokenizer. Throws usage where there is none, and as load_chat_template.
  ConversationWriter(FileSystem& files, const std::string& path, const std::string& tokenizer,
                     std::string messages_key, chat::Answers answers);

  // `where` names the line in errors, which are corrupt or unsupported.
  WrittenConversation write(const Json& line, const std::function<std::string()>& where) const;
  std::vector<std::string> literals() const { return template_.literals(); }

 private:
  chat::ChatTemplate template_;
  std::string messages_key_;
  chat::Answers answers_;
};

}  // namespace tutti::data
