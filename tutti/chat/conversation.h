// Renders conversations with chat templates: loads templates, provides their variables, and finds
// the assistant's parts of the output.
//
// A template gets the variables that transformers provides: messages, tools, documents (none if
// absent), add_generation_prompt, the special tokens of tokenizer_config.json (bos_token, ...), and
// further variables. Reasoning under any of its three names is available as reasoning_content and
// thinking. Two adjustments are automatic that transformers leaves to the caller:
//    - arguments of a tool call that are JSON in a string become the object that they encode;
//    - content is passed as text or as a list of parts, whichever the template expects.
//
// In the rendered text everything from messages, tools and variables is content (text.h). A role
// counts as the template's own text if it is one of known_roles(); any other is content, too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/chat/template.h"

namespace tutti::chat {

struct Conversation {
  Json messages = Json::array();    // objects with a role
  Json tools = nullptr;             // a list, or null
  Json documents = nullptr;         // likewise
  Json variables = Json::object();  // such as enable_thinking
  bool add_generation_prompt = false;
};

// The answers of the assistant to train on.
enum class Answers { all, last };
Answers parse_answers(const std::string& name);  // "all" or "last"; throws usage

const std::vector<std::string>& known_roles();

class ChatTemplate {
 public:
  // `tokens`: the texts of special tokens by name. `with_tools`: a separate template for
  // conversations with tools.
  ChatTemplate(Template plain, std::optional<Template> with_tools, const Json& tokens);

  // Throws usage or unsupported, naming the error in the conversation or the failing line of the
  // template.
  Rendered render(const Conversation& conversation, const RenderOptions& options = {}) const;

  // The answers in `rendered`, each from the end of its prompt to the end of its turn: the parts
  // inside {% generation %}, or else the output of a loop over the messages for each message of the
  // assistant after the generation prompt. Throws usage if the template has neither.
  std::vector<ByteRange> find_answers(const Conversation& conversation, const Rendered& rendered,
                                      Answers answers, const RenderOptions& options = {}) const;

  // All literal text of the templates.
  std::vector<std::string> literals() const;

 private:
  enum class ContentForm { text, parts, either };

  const Template& choose(const Conversation& conversation) const;
  ContentForm probe(const Template& choice) const;
  Rendered render_as(const Conversation& conversation, ContentForm form,
                     const RenderOptions& options) const;
  std::string generation_prompt(const Conversation& conversation, int before,
                                const RenderOptions& options) const;

  Template plain_;
  std::optional<Template> with_tools_;
  Json tokens_;
  ContentForm form_ = ContentForm::text, tools_form_ = ContentForm::text;
};

// Loads the template at `path`: a .jinja file; a tokenizer_config.json; or a folder with
// chat_template.jinja (preferred) or tokenizer_config.json. The special tokens come from the
// tokenizer_config.json at or beside it, if there is one. Throws not_found, corrupt, usage or
// unsupported, naming the file.
ChatTemplate load_chat_template(FileSystem& files, const std::string& path);

}  // namespace tutti::chat
