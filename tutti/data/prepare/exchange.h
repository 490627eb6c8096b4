// A line of JSON lines that is an exchange: what is asked, which is not trained on, and the answer.
//
//   prompt and completion   {"prompt": "...", "completion": "..."} under keys of the user's choice
//   messages                {"messages": [{"role": "user", "content": "..."}, ...]}: every message
//                           is written by a template, one after another. The last one must be the
//                           assistant's; its content and what the template has after it are the
//                           answer, everything before is the prompt.
//
// A template is text with {content} and, where wanted, {role}; \n in it is a line break.
#pragma once

#include <functional>
#include <string>

#include "tutti/base/json.h"

namespace tutti::data {

struct ExchangeKeys {
  std::string prompt = {};      // this and
  std::string completion = {};  // this, or
  std::string messages = {};    // this one, or none of them: lines are plain text
  std::string message_template = "{role}: {content}\\n";

  bool any() const { return !prompt.empty() || !completion.empty() || !messages.empty(); }
};

// Throws usage for keys that do not go together and for a template without {content}.
void check_exchange_keys(const ExchangeKeys& keys);

struct Exchange {
  std::string prompt, completion;
};

// `where` names the line in errors. Throws corrupt when the line is something else.
Exchange read_exchange(const Json& line, const ExchangeKeys& keys,
                       const std::function<std::string()>& where);

}  // namespace tutti::data
