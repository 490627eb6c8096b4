#include "tutti/data/prepare/conversation.h"

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/data/prepare/prepare.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/tokenizer_source.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

const char* const kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.tool %}{{ '<tool_call>' + m.tool + '</tool_call>' }}{% endif %}"
    "{{ m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

enum : int32_t { kStart = 256, kEnd, kCall, kNoCall, kWord };

// Ids 0 to 255 are GPT-2's letters of bytes; ASCII signs are themselves.
std::string tokenizer_file() {
  Json vocabulary = Json::object();
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printed =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    std::string letter;
    append_utf8(letter, static_cast<char32_t>(printed ? byte : next++));
    vocabulary[letter] = byte;
  }
  Json added = Json::array();
  const auto add = [&](int32_t id, const char* content, bool special) {
    added.push_back(
        {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}});
  };
  add(kStart, "<|im_start|>", true);
  add(kEnd, "<|im_end|>", true);
  add(kCall, "<tool_call>", false);
  add(kNoCall, "</tool_call>", false);
  add(kWord, "covid", false);
  return Json{{"added_tokens", added},
              {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}}
      .dump();
}

class PrepareConversations : public testing::Test {
 protected:
  PrepareConversations() {
    write_text(files_, "m/tokenizer.json", tokenizer_file());
    write_text(files_, "m/chat_template.jinja", kChatMl);
    options_.sources = {"in.jsonl"};
    options_.prefix = "c";
    options_.tokenizer = "m";
    options_.chat_template = "tokenizer";
  }
  void prepare_lines(const std::string& lines) {
    write_text(files_, "in.jsonl", lines);
    prepare(files_, options_);
  }
  std::vector<int32_t> ids() {
    const Corpus corpus(files_, "c");
    std::vector<int32_t> all(static_cast<size_t>(corpus.tokens()));
    corpus.read(0, corpus.tokens(), all.data());
    return all;
  }
  // The text of the first document as tokens: control tokens by name, '~' before what is masked.
  std::string shown() {
    const Corpus corpus(files_, "c");
    const auto mask = open_loss_mask(files_, corpus);
    const std::vector<MaskedRange> further = mask->further(0);
    std::string out;
    const std::vector<int32_t> all = ids();
    for (size_t i = 0; i < static_cast<size_t>(corpus.document_range(0).count); ++i) {
      bool hidden = i < static_cast<size_t>(mask->masked(0));
      for (const MaskedRange& range : further)
        hidden = hidden || (i >= range.begin && i < range.end);
      if (hidden) out += '~';
      const char* const names[] = {"[S]", "[E]", "[C]", "[/C]", "[W]"};
      out += all[i] >= kStart ? names[all[i] - kStart] : std::string(1, static_cast<char>(all[i]));
    }
    return out;
  }
  std::string refusal(const std::string& lines, ErrorKind kind = ErrorKind::corrupt) {
    write_text(files_, "in.jsonl", lines);
    options_.overwrite = true;
    return error_of(kind, [&] { prepare(files_, options_); });
  }
  MemoryFileSystem files_;
  PrepareOptions options_;
};

const char* const kTurns =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
    {"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})";

std::string line(std::string text) {
  for (char& c : text) c = c == '\n' ? ' ' : c;
  return text + "\n";
}
std::string masked(const std::string& text) {
  std::string out;
  for (const char c : text) out += std::string("~") + c;
  return out;
}

TEST_F(PrepareConversations, EveryAnswerIsTrainedOn) {
  prepare_lines(line(kTurns));
  const auto prompt = [](const std::string& content) {
    return "~[S]" + masked("user\n" + content) + "~[E]~\n~[S]" + masked("assistant\n");
  };
  EXPECT_EQ(shown(), prompt("q") + "a[E]\n" + prompt("r") + "b[E]\n");
  options_.answers = chat::Answers::last;
  options_.overwrite = true;
  prepare_lines(line(kTurns));
  EXPECT_EQ(shown(), prompt("q") + masked("a") + "~[E]~\n" + prompt("r") + "b[E]\n");
  // One range at the start: the file of before.
  EXPECT_EQ(read_file(files_, "c.mask")[8], 1);
}

TEST_F(PrepareConversations, ContentNeverBecomesAControlToken) {
  prepare_lines(line(R"({"messages": [{"role": "user", "content": "<|im_end|>x</tool_call>covid"},
      {"role": "<|im_start|>", "content": "y"}, {"role": "user", "content": "<|im_"},
      {"role": "assistant", "content": "<|im_end|><tool_call>", "tool": "z"}]})"));
  int controls = 0;
  for (const int32_t id : ids()) controls += id == kStart || id == kEnd ? 1 : 0;
  EXPECT_EQ(controls, 8);  // two per message, of the template
  const std::string text = shown();
  EXPECT_TRUE(contains(text, masked("<|im_end|>x</tool_call>") + "~[W]~[E]")) << text;
  EXPECT_TRUE(contains(text, "~[S]" + masked("<|im_start|>\ny") + "~[E]")) << text;
  EXPECT_TRUE(contains(text, masked("<|im_") + "~[E]")) << text;
  // The assistant may call tools in its own words, but not end its turn.
  EXPECT_TRUE(contains(text, "[C]z[/C]<|im_end|>[C][E]\n")) << text;
}

TEST_F(PrepareConversations, ToolsAndVariablesReachTheTemplate) {
  write_text(files_, "m/chat_template.jinja",
             "{{ tools|tojson }}{{ mode }}{% for m in messages %}{% generation %}{{ m.content }}"
             "{% endgeneration %}{% endfor %}");
  prepare_lines(line(R"({"messages": [{"role": "assistant", "content": "a"}], "tools": [{"n": 1}],
      "chat_template_kwargs": {"mode": "x"}})"));
  EXPECT_EQ(shown(), masked("[{\"n\": 1}]x") + "a");
}

TEST_F(PrepareConversations, OtherTokenizersTakeTheTextAsItIs) {
  options_.tokenizer = "byte";
  options_.chat_template = "m/chat_template.jinja";
  prepare_lines(line(kTurns));
  const std::string text = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n";
  const Corpus corpus(files_, "c");
  EXPECT_EQ(open_loss_mask(files_, corpus)->masked(0), static_cast<int64_t>(text.size()));
}

TEST_F(PrepareConversations, MasksFollowTheirDocumentsIntoTheHoldout) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    lines +=
        line(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",
        "content": "A)" +
             std::to_string(i) +
             R"("}, {"role": "user", "content": "r"}, {"role": "assistant", "content": "BB"}]})");
  }
  options_.holdout_share = 0.3;
  prepare_lines(lines);
  int64_t documents = 0;
  for (const std::string prefix : {"c", "c-validation"}) {
    const Corpus corpus(files_, prefix);
    const auto mask = open_loss_mask(files_, corpus);
    documents += corpus.documents();
    for (int64_t d = 0; d < corpus.documents(); ++d) {
      const auto range = corpus.document_range(d);
      std::vector<int32_t> all(static_cast<size_t>(range.count));
      corpus.read(range.first, range.count, all.data());
      EXPECT_EQ(all[static_cast<size_t>(mask->masked(d))], 'A');
      ASSERT_EQ(mask->further(d).size(), 1U);
      EXPECT_EQ(all[mask->further(d)[0].begin], kStart);
      EXPECT_EQ(all[mask->further(d)[0].end], 'B');
    }
  }
  EXPECT_EQ(documents, 60);
}

TEST_F(PrepareConversations, WhatCannotBeWrittenIsNamedWithItsLine) {
  EXPECT_TRUE(
      contains(refusal("{\"text\": 1}\n"), "in.jsonl:1: each line is an object with a list "));
  EXPECT_TRUE(contains(refusal(line(kTurns) + "{\"messages\": [{\"role\": \"user\"}]}\n"),
                       "in.jsonl:2: m/chat_template.jinja:1: "));
  EXPECT_TRUE(
      contains(refusal(R"({"messages": [{"role": "assistant", "content": "a"}], "tools": {}})"),
               "'tools' is a list"));
  options_.tokenizer_options.special = true;
  EXPECT_TRUE(contains(refusal(line(kTurns), ErrorKind::usage), "--special"));
  options_.tokenizer_options.special = false;
  options_.exchange.message_template = "{content}";
  EXPECT_TRUE(contains(refusal(line(kTurns), ErrorKind::usage), "--template"));
  options_.exchange = {};
  options_.tokenizer = "byte";
  EXPECT_TRUE(contains(refusal(line(kTurns), ErrorKind::usage), "has no template"));
  options_.chat_template = "";
  options_.answers = chat::Answers::last;
  EXPECT_TRUE(contains(refusal(line(kTurns), ErrorKind::usage), "--answers"));
}

}  // namespace
}  // namespace tutti::data
