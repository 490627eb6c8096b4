// Conversations through chat templates: where a template comes from, what it is given, and which
// part of what it writes is the assistant's.
//
// A template is given what transformers gives it: messages, tools, documents (none where absent),
// add_generation_prompt, the special tokens of tokenizer_config.json (bos_token, ...), and further
// variables. Reasoning under any of its three names is there under reasoning_content and thinking.
// Two things are made to fit where transformers leaves them to the caller:
//   - the arguments of a tool call that are JSON in a string become the object that they spell;
//   - content is given as text or as a list of parts, whichever the template writes out.
//
// In the text that comes out, what messages, tools and variables said is content (text.h). A role
// is the template's own where it is one of known_roles(); any other is content too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/chat/template.h"

namespace tutti::chat {

struct Conversation {
  Json messages = Json::array();    // of objects with a role
  Json tools = nullptr;             // a list, or null
  Json documents = nullptr;         // likewise
  Json variables = Json::object();  // such as enable_thinking
  bool add_generation_prompt = false;
};

// Which answers of the assistant are learnt.
enum class Answers { all, last };
Answers parse_answers(const std::string& name);  // "all" or "last"; throws usage

const std::vector<std::string>& known_roles();

class ChatTemplate {
 public:
  // `tokens`: the texts of special tokens by their names. `with_tools`: a template of its own for
  // conversations with tools.
  ChatTemplate(Template plain, std::optional<Template> with_tools, const Json& tokens);

  // Throws usage or unsupported: what is wrong with the conversation, or where the template fails.
  Rendered render(const Conversation& conversation, const RenderOptions& options = {}) const;

  // The answers in `rendered`, from the end of the prompt of each to the end of its turn: what
  // {% generation %} marks, or else what a loop over the messages wrote for each message of the
  // assistant behind the generation prompt. Throws usage where the template does not show them.
  std::vector<ByteRange> find_answers(const Conversation& conversation, const Rendered& rendered,
                                      Answers answers, const RenderOptions& options = {}) const;

  // All text that the templates spell.
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

// The template at `path`: a .jinja file; a tokenizer_config.json; or a folder with one of
// chat_template.jinja and tokenizer_config.json, the former first. The special tokens are those of
// the tokenizer_config.json there or beside it, where there is one. Throws not_found, corrupt,
// usage or unsupported, naming the file.
ChatTemplate load_chat_template(FileSystem& files, const std::string& path);

}  // namespace tutti::chat
