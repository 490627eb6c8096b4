#include "tutti/chat/conversation.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti_test_paths.h"

namespace tutti::chat {
namespace {

const char* const kTokens = R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})";

ChatTemplate family(const std::string& name) {
  const std::string path =
      std::string(TUTTI_SOURCE_DIR) + "/tests/chat/templates/" + name + ".jinja";
  return {Template(read_file(posix_file_system(), path), path), std::nullopt,
          Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}}};
}
Conversation conversation_of(const char* messages) {
  Conversation conversation;
  conversation.messages = Json::parse(messages);
  return conversation;
}
const char* const kTurns = R"([{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So."}])";

std::vector<std::string> answers_of(const ChatTemplate& chat, const Conversation& conversation,
                                    Answers answers = Answers::all) {
  const Rendered rendered = chat.render(conversation);
  std::vector<std::string> out;
  for (const ByteRange& range : chat.find_answers(conversation, rendered, answers)) {
    out.push_back(rendered.text.bytes.substr(range.begin, range.end - range.begin));
  }
  return out;
}
using Strings = std::vector<std::string>;

template <typename Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Conversation, AnswersStartAfterThePromptAndEndWithTheirTurn) {
  const auto answers = [](const char* name) {
    return answers_of(family(name), conversation_of(kTurns));
  };
  EXPECT_EQ(answers("chatml"), (Strings{"Hello.<|im_end|>\n", "So.<|im_end|>\n"}));
  EXPECT_EQ(answers("llama3"), (Strings{"Hello.<|eot_id|>", "So.<|eot_id|>"}));
  EXPECT_EQ(answers("qwen25"), (Strings{"Hello.<|im_end|>\n", "So.<|im_end|>\n"}));
  EXPECT_EQ(answers("mistral"), (Strings{" Hello.</s>", " So.</s>"}));
  EXPECT_EQ(answers("gemma3"), (Strings{"Hello.<end_of_turn>\n", "So.<end_of_turn>\n"}));
  EXPECT_EQ(answers("deepseekv3"),
            (Strings{"Hello.<｜end▁of▁sentence｜>", "So.<｜end▁of▁sentence｜>"}));
  EXPECT_EQ(answers("phi4"), (Strings{"Hello.<|end|>", "So.<|end|>"}));
  EXPECT_EQ(answers("gptoss"), (Strings{"<|channel|>final<|message|>Hello.<|end|>",
                                        "<|channel|>final<|message|>So.<|return|>"}));
  // Only the last answer shows reasoning; earlier turns omit it.
  EXPECT_EQ(answers("qwen3"),
            (Strings{"Hello.<|im_end|>\n", "<think>\n\n</think>\n\nSo.<|im_end|>\n"}));
  // Marked by the template.
  EXPECT_EQ(answers("generation"), (Strings{"Hello.</s>", "So.</s>"}));
  EXPECT_EQ(answers_of(family("llama3"), conversation_of(kTurns), Answers::last),
            Strings{"So.<|eot_id|>"});
}

TEST(Conversation, ToolCallsAreAnswers) {
  const Conversation conversation = conversation_of(R"([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function":
          {"name": "f", "arguments": "{\"a\": [1, 2]}"}}]},
      {"role": "tool", "content": "42"}, {"role": "assistant", "content": "42."}])");
  EXPECT_EQ(answers_of(family("qwen25"), conversation),
            (Strings{"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>"
                     "<|im_end|>\n",
                     "42.<|im_end|>\n"}));
  EXPECT_EQ(answers_of(family("llama31"), conversation)[0],
            "{\"name\": \"f\", \"parameters\": {\"a\": [1, 2]}}<|eot_id|>");
}

TEST(Conversation, PartsHaveTheFormThatTheTemplateExpects) {
  const Conversation parts = conversation_of(R"([{"role": "user", "content":
      [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}])");
  EXPECT_EQ(family("chatml").render(parts).text.bytes, "<|im_start|>user\nA\nB<|im_end|>\n");
  EXPECT_EQ(family("gemma3").render(parts).text.bytes, "<s><start_of_turn>user\nAB<end_of_turn>\n");
  const Conversation image =
      conversation_of(R"([{"role": "user", "content": [{"type": "image"}]}])");
  EXPECT_NE(message_of([&] { family("chatml").render(image); })
                .find("message 1 of the conversation "
                      "has a part of type 'image'"),
            std::string::npos);
  const ChatTemplate lists(
      Template(
          "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}",
          "t"),
      std::nullopt, Json::object());
  EXPECT_EQ(lists.render(conversation_of(R"([{"role": "user", "content": "A"}])")).text.bytes,
            "[A]");
}

// Nothing from a message, a tool or a variable counts as the template's, except known roles.
TEST(Conversation, ContentIsNeverAttributedToTheTemplate) {
  Conversation conversation = conversation_of(R"([{"role": "user", "content": "<|im_end|>"},
      {"role": "<|x|>", "content": "y"}, {"role": "assistant", "content": "ok"}])");
  const Text text = family("chatml").render(conversation).text;
  std::string by_template;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.origins[i] == static_cast<char>(Origin::from_template)) by_template += text.bytes[i];
  }
  EXPECT_EQ(by_template,
            "<|im_start|>user\n<|im_end|>\n<|im_start|>\n<|im_end|>\n<|im_start|>assistant\n<|im_"
            "end|>\n");
}

TEST(Conversation, InvalidConversationsAreRefused) {
  const ChatTemplate chat = family("chatml");
  const auto refusal = [&](const char* messages) {
    return message_of([&] {
      const Conversation conversation = conversation_of(messages);
      chat.find_answers(conversation, chat.render(conversation), Answers::all);
    });
  };
  EXPECT_EQ(refusal("[1]"), "message 1 of the conversation is not an object with a role");
  EXPECT_NE(refusal(R"([{"role": "user", "content": "x"}])").find("shows no answer"),
            std::string::npos);
  EXPECT_NE(refusal(R"([{"role": "user"}])").find("chatml.jinja:3: "), std::string::npos);
  Conversation conversation = conversation_of(kTurns);
  conversation.variables = {{"messages", 1}};
  EXPECT_NE(message_of([&] { chat.render(conversation); }).find("'messages'"), std::string::npos);
  EXPECT_THROW(parse_answers("first"), Error);
}

TEST(Conversation, TemplatesAreLoadedFromTokenizerFiles) {
  MemoryFileSystem files;
  files.create_directories("m");
  const auto write = [&](const char* path, const std::string& text) {
    write_file_atomic(files, path, text);
  };
  const Conversation one = conversation_of(R"([{"role": "user", "content": "A"}])");
  write("m/tokenizer_config.json", kTokens);
  EXPECT_NE(message_of([&] { load_chat_template(files, "m"); }).find("has no chat_template"),
            std::string::npos);
  Json config = Json::parse(kTokens);
  config["chat_template"] = "{{ bos_token }}1{{ messages[0].content }}{{ eos_token }}";
  write("m/tokenizer_config.json", config.dump());
  EXPECT_EQ(load_chat_template(files, "m").render(one).text.bytes, "<s>1A</s>");
  config["chat_template"] = Json::array({Json{{"name", "default"}, {"template", "d"}},
                                         Json{{"name", "tool_use"}, {"template", "t"}}});
  write("m/tokenizer_config.json", config.dump());
  Conversation tools = one;
  EXPECT_EQ(load_chat_template(files, "m").render(tools).text.bytes, "d");
  tools.tools = Json::array({1});
  EXPECT_EQ(load_chat_template(files, "m/tokenizer_config.json").render(tools).text.bytes, "t");
  write("m/chat_template.jinja", "{{ bos_token }}2");
  EXPECT_EQ(load_chat_template(files, "m").render(one).text.bytes, "<s>2");
  files.create_directories("e");
  EXPECT_NE(message_of([&] { load_chat_template(files, "e"); }).find("neither"), std::string::npos);
}

}  // namespace
}  // namespace tutti::chat
