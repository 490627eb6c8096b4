#include "tutti/chat/conversation.h"

#include <algorithm>
#include <array>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/chat/json_value.h"

namespace tutti::chat {
namespace {

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

[[noreturn]] void refuse_message(size_t index, const std::string& what) {
  fail(ErrorKind::usage, "message {} of the conversation {}", index + 1, what);
}

bool has(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && !found->is_null();
}

// Joins the parts of a content to one text.
std::string joined_parts(const Json& parts, size_t index) {
  std::vector<std::string> texts;
  for (const Json& part : parts) {
    if (!part.is_object() || !part.contains("text") || !part["text"].is_string()) {
      const bool typed = part.is_object() && part.contains("type") && part["type"].is_string();
      refuse_message(index, "has a part" +
                                (typed ? " of type '" + part["type"].get<std::string>() + "'"
                                       : std::string()) +
                                " without text; this template supports text only");
    }
    texts.push_back(part["text"].get<std::string>());
  }
  return join(texts, "\n");
}

// Arguments that are JSON in a string, as in OpenAI's API.
void open_arguments(Json& message, size_t index) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return;
  if (!calls->is_array()) refuse_message(index, "has 'tool_calls' that are not a list");
  for (Json& call : *calls) {
    if (!call.is_object()) refuse_message(index, "has a tool call that is not an object");
    const auto function = call.find("function");
    Json& holder = function != call.end() && function->is_object() ? *function : call;
    const auto arguments = holder.find("arguments");
    if (arguments == holder.end() || !arguments->is_string()) continue;
    Json opened = Json::parse(arguments->get_ref<const std::string&>(), nullptr, false);
    if (opened.is_object()) *arguments = std::move(opened);
  }
}

void name_reasoning(Json& message) {
  for (const char* key : kReasoningKeys) {
    if (!has(message, key)) continue;
    const Json reasoning = message[key];
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

Value message_value(const Json& message, size_t index, bool known_role) {
  const bool assistant = message["role"] == "assistant";
  const Origin origin = assistant ? Origin::from_assistant : Origin::from_input;
  Dict dict;
  dict.message = static_cast<int>(index);
  for (const auto& item : message.items()) {
    const bool is_role = item.key() == "role" && known_role;
    dict.items.emplace_back(
        Value(Text(item.key(), origin)),
        value_from_json(item.value(), is_role ? Origin::from_template : origin));
  }
  return Value(std::move(dict));
}

Json text_parts(const std::string& text) {
  return Json::array({Json{{"type", "text"}, {"text", text}}});
}

// Special tokens of tokenizer_config.json by name: a text, or an object with its content.
Json special_tokens(const Json& config) {
  Json tokens = Json::object();
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    if (!config.is_object() || !config.contains(name)) continue;
    const Json& token = config[name];
    if (token.is_string()) tokens[name] = token;
    if (token.is_object() && token.contains("content") && token["content"].is_string()) {
      tokens[name] = token["content"];
    }
  }
  return tokens;
}

Template named_template(const Json& list, const std::string& path, const std::string& name) {
  for (const Json& entry : list) {
    if (json_get<std::string>(entry, "name", path) != name) continue;
    return Template(json_get<std::string>(entry, "template", path),
                    fmt::format("{}: {}", path, name));
  }
  fail(ErrorKind::usage, "'{}': chat_template has no template named '{}'", path, name);
}

ChatTemplate template_of_config(const Json& config, const std::string& path) {
  const auto found = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || found == config.end() || found->is_null()) {
    fail(ErrorKind::usage,
         "'{}' has no chat_template: pass a .jinja file, or save one as {} beside it", path,
         kTemplateFile);
  }
  if (found->is_string()) {
    return {Template(found->get_ref<const std::string&>(), path), std::nullopt,
            special_tokens(config)};
  }
  if (!found->is_array()) {
    fail(ErrorKind::corrupt, "'{}': chat_template is of type {}, not a template or a list of them",
         path, found->type_name());
  }
  std::optional<Template> with_tools;
  for (const Json& entry : *found) {
    if (json_get<std::string>(entry, "name", path) == "tool_use") {
      with_tools = named_template(*found, path, "tool_use");
    }
  }
  return {named_template(*found, path, "default"), std::move(with_tools), special_tokens(config)};
}

Json config_beside(FileSystem& files, const std::string& folder) {
  const std::string path = join_path(folder, kTokenizerConfig);
  return files.exists(path) ? parse_json(read_file(files, path), path) : Json::object();
}

size_t common_prefix(std::string_view a, std::string_view b) {
  const auto ends = std::mismatch(
      a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  return static_cast<size_t>(ends.first - a.begin());
}

// The start of the answer in its output, after the generation prompt.
size_t answer_start(const Text& text, const MessageRange& range, const std::string& prompt,
                    const std::string& origin) {
  const std::string_view turn =
      std::string_view(text.bytes).substr(range.begin, range.end - range.begin);
  if (turn.starts_with(prompt)) return range.begin + prompt.size();
  const size_t content = text.origins.find(static_cast<char>(Origin::from_assistant), range.begin);
  const size_t found = text.bytes.find(prompt, range.begin);
  if (found != std::string::npos && found + prompt.size() <= std::min(content, range.end)) {
    return found + prompt.size();
  }
  // A prompt that is longer, such as one that opens a reasoning section that the turn lacks.
  const size_t common = common_prefix(turn, prompt);
  if (common > 0) return range.begin + common;
  fail(ErrorKind::usage,
       "'{}': the turns of the assistant do not start as the generation prompt does, so the start "
       "of its answers is not known; mark them in the template with {{% generation %}}",
       origin);
}

}  // namespace

Answers parse_answers(const std::string& name) {
  if (name == "all") return Answers::all;
  if (name == "last") return Answers::last;
  fail(ErrorKind::usage, "unknown answers '{}'; accepted: all, last", name);
}

const std::vector<std::string>& known_roles() {
  static const std::vector<std::string> roles = {"system", "developer",  "user",    "assistant",
                                                 "tool",   "function",   "ipython", "observation",
                                                 "model",  "environment"};
  return roles;
}

ChatTemplate::ChatTemplate(Template plain, std::optional<Template> with_tools, const Json& tokens)
    : plain_(std::move(plain)), with_tools_(std::move(with_tools)), tokens_(tokens) {
  form_ = probe(plain_);
  tools_form_ = with_tools_ ? probe(*with_tools_) : form_;
}

const Template& ChatTemplate::choose(const Conversation& conversation) const {
  return with_tools_ && !conversation.tools.is_null() ? *with_tools_ : plain_;
}

// A message in both forms shows which one the template expects.
ChatTemplate::ContentForm ChatTemplate::probe(const Template& choice) const {
  const std::string needle = "xQzProbe";
  const auto shows = [&](const Json& content, ContentForm) {
    Variables variables = {
        {"messages", value_from_json(Json::array({Json{{"role", "user"}, {"content", content}}}),
                                     Origin::from_input)},
        {"tools", Value(nullptr)},
        {"documents", Value(nullptr)},
        {"add_generation_prompt", Value(false)}};
    for (const auto& token : tokens_.items()) {
      variables.emplace_back(token.key(), value_from_json(token.value(), Origin::from_template));
    }
    try {
      const std::string text = choice.render(variables).text.bytes;
      return text.find(needle) != std::string::npos && text.find("'type'") == std::string::npos &&
             text.find("\"type\"") == std::string::npos;
    } catch (const Error&) {
      return false;
    }
  };
  const bool parts = shows(text_parts(needle), ContentForm::parts);
  const bool text = shows(needle, ContentForm::text);
  return parts && text ? ContentForm::either : parts ? ContentForm::parts : ContentForm::text;
}

Rendered ChatTemplate::render(const Conversation& conversation,
                              const RenderOptions& options) const {
  const bool tools = with_tools_ && !conversation.tools.is_null();
  return render_as(conversation, tools ? tools_form_ : form_, options);
}

Rendered ChatTemplate::render_as(const Conversation& conversation, ContentForm form,
                                 const RenderOptions& options) const {
  if (!conversation.messages.is_array()) {
    fail(ErrorKind::usage, "messages must be a list, not {}", conversation.messages.type_name());
  }
  Sequence messages;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    Json message = conversation.messages[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string()) {
      refuse_message(i, "is not an object with a role");
    }
    const bool known =
        std::find(known_roles().begin(), known_roles().end(),
                  message["role"].get_ref<const std::string&>()) != known_roles().end();
    open_arguments(message, i);
    name_reasoning(message);
    const auto content = message.find("content");
    if (content != message.end() && content->is_array() && form == ContentForm::text) {
      *content = joined_parts(*content, i);
    } else if (content != message.end() && content->is_string() && form == ContentForm::parts) {
      *content = text_parts(content->get<std::string>());
    }
    messages.items.push_back(message_value(message, i, known));
  }
  Variables variables = {{"messages", Value(std::move(messages))},
                         {"tools", value_from_json(conversation.tools, Origin::from_input)},
                         {"documents", value_from_json(conversation.documents, Origin::from_input)},
                         {"add_generation_prompt", Value(conversation.add_generation_prompt)}};
  for (const auto& token : tokens_.items()) {
    if (conversation.variables.contains(token.key())) continue;
    variables.emplace_back(token.key(), value_from_json(token.value(), Origin::from_template));
  }
  for (const auto& item : conversation.variables.items()) {
    for (const char* own : {"messages", "tools", "documents", "add_generation_prompt"}) {
      if (item.key() == own) fail(ErrorKind::usage, "the variable '{}' cannot be set", own);
    }
    variables.emplace_back(item.key(), value_from_json(item.value(), Origin::from_input));
  }
  return choose(conversation).render(variables, options);
}

// The text that the template appends after the messages before number `before`, as prompt for the
// assistant.
std::string ChatTemplate::generation_prompt(const Conversation& conversation, int before,
                                            const RenderOptions& options) const {
  Conversation start = conversation;
  start.messages = Json::array();
  for (int i = 0; i < before; ++i) {
    start.messages.push_back(conversation.messages[static_cast<size_t>(i)]);
  }
  start.add_generation_prompt = false;
  const std::string without = render(start, options).text.bytes;
  start.add_generation_prompt = true;
  const std::string with = render(start, options).text.bytes;
  // Without a generation prompt the text may end differently, such as with an end-of-text token.
  return with.substr(common_prefix(with, without));
}

std::vector<ByteRange> ChatTemplate::find_answers(const Conversation& conversation,
                                                  const Rendered& rendered, Answers answers,
                                                  const RenderOptions& options) const {
  const Template& choice = choose(conversation);
  std::vector<ByteRange> found;
  if (choice.has_generation()) {
    for (const ByteRange& range : rendered.generated) {
      if (range.end > range.begin) found.push_back(range);
    }
  } else {
    std::vector<MessageRange> turns;
    for (size_t i = 0; i < conversation.messages.size(); ++i) {
      if (conversation.messages[i]["role"] != "assistant") continue;
      MessageRange turn;
      for (const MessageRange& range : rendered.messages) {
        const bool longer = range.end - range.begin > turn.end - turn.begin;
        if (range.message == static_cast<int>(i) && longer) turn = range;
      }
      if (turn.end > turn.begin) turns.push_back(turn);
    }
    if (!turns.empty()) {
      const std::string prompt = generation_prompt(conversation, turns.back().message, options);
      for (const MessageRange& turn : turns) {
        const size_t begin = answer_start(rendered.text, turn, prompt, choice.origin());
        if (turn.end > begin) found.push_back({begin, turn.end});
      }
    }
  }
  std::sort(found.begin(), found.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < found.size(); ++i) {
    if (found[i].begin >= found[i - 1].end) continue;
    fail(ErrorKind::usage, "'{}': the template marks one text as generated twice", choice.origin());
  }
  if (found.empty()) {
    fail(ErrorKind::usage,
         "'{}': the template shows no answer of the assistant: the conversation has none, or the "
         "template neither loops over the messages nor marks answers with {{% generation %}}",
         choice.origin());
  }
  if (answers == Answers::last) found.erase(found.begin(), found.end() - 1);
  return found;
}

std::vector<std::string> ChatTemplate::literals() const {
  std::vector<std::string> all = plain_.literals();
  if (with_tools_) {
    all.insert(all.end(), with_tools_->literals().begin(), with_tools_->literals().end());
  }
  return all;
}

ChatTemplate load_chat_template(FileSystem& files, const std::string& path) {
  if (files.is_directory(path)) {
    const std::string beside = join_path(path, kTemplateFile);
    if (files.exists(beside)) return load_chat_template(files, beside);
    const std::string config = join_path(path, kTokenizerConfig);
    if (!files.exists(config)) {
      fail(ErrorKind::not_found, "the folder '{}' has neither {} nor {}", path, kTemplateFile,
           kTokenizerConfig);
    }
    return template_of_config(parse_json(read_file(files, config), config), config);
  }
  if (ends_with(path, ".json")) {
    return template_of_config(parse_json(read_file(files, path), path), path);
  }
  return {Template(read_file(files, path), path), std::nullopt,
          special_tokens(config_beside(files, parent_path(path)))};
}

}  // namespace tutti::chat
