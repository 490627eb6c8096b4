#include "tutti/data/prepare/exchange.h"

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/data/prepare/prepare.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

Exchange read(const char* line, const ExchangeKeys& keys) {
  return read_exchange(parse_json(line, "test"), keys, [] { return std::string("a.jsonl:3"); });
}
std::string refusal(const char* line, const ExchangeKeys& keys) {
  return error_of(ErrorKind::corrupt, [&] { read(line, keys); });
}

const ExchangeKeys kPrompts = {.prompt = "q", .completion = "a"};
const ExchangeKeys kMessages = {.messages = "messages"};

TEST(Exchange, PromptAndCompletion) {
  const Exchange exchange = read(R"({"q": "1+1=", "a": "2", "other": 3})", kPrompts);
  EXPECT_EQ(exchange.prompt, "1+1=");
  EXPECT_EQ(exchange.completion, "2");
  EXPECT_TRUE(contains(refusal(R"({"q": "x"})", kPrompts), "a.jsonl:3: each line"));
  EXPECT_TRUE(contains(refusal(R"({"q": "x", "a": 2})", kPrompts),
                       "'a'; this one has there a value of type number"));
  EXPECT_TRUE(contains(refusal("[1]", kPrompts), "is of type array"));
}

TEST(Exchange, MessagesAreConcatenatedAndTheLastAnswerIsLearnt) {
  const char* line = R"({"messages": [{"role": "system", "content": "Be brief."},
      {"role": "user", "content": "Hi {role}"}, {"role": "assistant", "content": "Hello"},
      {"role": "user", "content": "?"}, {"role": "assistant", "content": "Yes."}]})";
  const Exchange exchange = read(line, kMessages);
  EXPECT_EQ(exchange.prompt,
            "system: Be brief.\nuser: Hi {role}\nassistant: Hello\nuser: ?\nassistant: ");
  EXPECT_EQ(exchange.completion, "Yes.\n");
  ExchangeKeys other = kMessages;
  other.message_template = "<{role}>{content}</{role}>";
  EXPECT_EQ(read(line, other).completion, "Yes.</assistant>");
}

TEST(Exchange, WhatIsNoConversationIsNamed) {
  EXPECT_TRUE(contains(refusal(R"({"messages": []})", kMessages), "empty"));
  EXPECT_TRUE(contains(refusal(R"({"text": "x"})", kMessages), "'messages'"));
  EXPECT_TRUE(
      contains(refusal(R"({"messages": [{"role": "assistant"}]})", kMessages), "'content'"));
  EXPECT_TRUE(contains(refusal(R"({"messages": [{"role": "user", "content": "x"}]})", kMessages),
                       "role 'user'"));
}

TEST(Exchange, ConflictingKeysAreRefused) {
  const auto usage = [](const ExchangeKeys& keys) {
    return error_of(ErrorKind::usage, [&] { check_exchange_keys(keys); });
  };
  EXPECT_TRUE(contains(usage({.prompt = "q"}), "both"));
  EXPECT_TRUE(contains(usage({.prompt = "q", .completion = "a", .messages = "m"}), "'m'"));
  EXPECT_TRUE(contains(usage({.messages = "m", .message_template = "{role}"}), "{content}"));
}

class PrepareExchanges : public testing::Test {
 protected:
  PrepareExchanges() {
    options_.sources = {"in.jsonl"};
    options_.prefix = "c";
    options_.exchange = {.prompt = "prompt", .completion = "completion"};
  }
  MemoryFileSystem files_;
  PrepareOptions options_;
};

TEST_F(PrepareExchanges, MasksThePromptOfEveryDocument) {
  write_text(files_, "in.jsonl",
             "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n"
             "{\"prompt\": \"\", \"completion\": \"x\"}\n"
             "{\"prompt\": \"nothing\", \"completion\": \"\"}\n"
             "{\"prompt\": \"long question\", \"completion\": \"!\"}\n");
  const PrepareResult result = prepare(files_, options_);
  EXPECT_EQ(result.training.corpus.documents, 3);
  const Corpus corpus(files_, "c");
  const auto mask = open_loss_mask(files_, corpus);
  ASSERT_NE(mask, nullptr);
  EXPECT_EQ(mask->masked(0), 2);
  EXPECT_EQ(mask->masked(1), 0);
  EXPECT_EQ(mask->masked(2), 13);
  std::vector<int32_t> ids(6);
  corpus.read(0, 6, ids.data());
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', 'b', 'c', 'd', 'e', 256}));
}

TEST_F(PrepareExchanges, HeldOutDocumentsKeepTheirMasks) {
  std::string lines;
  for (int i = 0; i < 200; ++i) {
    lines += "{\"prompt\": \"" + std::string(static_cast<size_t>(1 + i % 7), 'p') +
             "\", \"completion\": \"" + std::to_string(i) + "\"}\n";
  }
  write_text(files_, "in.jsonl", lines);
  options_.holdout_share = 0.3;
  prepare(files_, options_);
  int64_t documents = 0;
  for (const std::string prefix : {"c", "c-validation"}) {
    const Corpus corpus(files_, prefix);
    const auto mask = open_loss_mask(files_, corpus);
    ASSERT_NE(mask, nullptr);
    documents += corpus.documents();
    for (int64_t d = 0; d < corpus.documents(); ++d) {
      const auto range = corpus.document_range(d);
      std::vector<int32_t> ids(static_cast<size_t>(range.count));
      corpus.read(range.first, range.count, ids.data());
      EXPECT_EQ(mask->masked(d), std::count(ids.begin(), ids.end(), 'p'));
    }
  }
  EXPECT_EQ(documents, 200);
}

TEST_F(PrepareExchanges, MasksAreRemovedWithTheirCorpus) {
  write_text(files_, "in.jsonl",
             "{\"prompt\": \"ab\", \"completion\": \"cde\", \"text\": \"t\"}\n");
  prepare(files_, options_);
  ASSERT_TRUE(files_.exists("c.mask"));
  options_.overwrite = true;
  options_.exchange = {};
  prepare(files_, options_);
  EXPECT_FALSE(files_.exists("c.mask"));
}

TEST_F(PrepareExchanges, ATailSplitIsRefused) {
  write_text(files_, "in.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cde\"}\n");
  options_.holdout_share = 0.5;
  options_.split = SplitMethod::tail;
  const std::string message = error_of(ErrorKind::usage, [&] { prepare(files_, options_); });
  EXPECT_TRUE(contains(message, "documents")) << message;
}

}  // namespace
}  // namespace tutti::data
