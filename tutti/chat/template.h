// A chat template in Jinja, rendered like transformers' apply_chat_template: parsed once, rendered
// any number of times, from any number of threads.
//
// Rendering has no access to files, the network or the program; its time and memory are bounded
// (context.h). Unsupported parts of Jinja are refused by name, never rendered differently:
// docs/chat.md has the list.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/chat/context.h"
#include "tutti/chat/text.h"
#include "tutti/chat/value.h"

namespace tutti::chat {

using Variables = std::vector<std::pair<std::string, Value>>;

struct ByteRange {
  size_t begin = 0, end = 0;
};

// The output of a loop for one message of the conversation.
struct MessageRange {
  int message = 0;
  size_t begin = 0, end = 0;
};

struct Rendered {
  Text text;
  std::vector<ByteRange> generated;    // inside {% generation %}, in order
  std::vector<MessageRange> messages;  // innermost loops first
};

struct RenderOptions {
  Limits limits = {};
  std::optional<double> now_seconds = {};  // for strftime_now, since 1970; absent: the clock's
};

class Template {
 public:
  // `origin` names the template in errors. Throws usage or unsupported, naming the line.
  Template(std::string_view source, std::string origin);
  ~Template();
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;

  // Throws usage or unsupported naming the line, also for raise_exception.
  Rendered render(const Variables& variables, const RenderOptions& options = {}) const;

  const std::string& origin() const;
  bool has_generation() const;  // whether the template contains {% generation %}
  // All literal text of the template: outside its tags and in strings.
  const std::vector<std::string>& literals() const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace tutti::chat
