#include "tutti/data/tokenizers/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/prepare_support.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/data/tokenizers/tokenizer_source.h"
#include "tutti/data/tokenizers/train_tokenizer.h"

namespace tutti::data {
namespace {

std::string words(uint64_t seed, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    const uint64_t draw = random_u64(seed, static_cast<uint64_t>(i));
    const uint64_t word = (draw % 60) * (draw % 60) / 40;
    for (uint64_t n = 0; n < 2 + word % 6; ++n) {
      text += static_cast<char>('a' + random_u64(word, n) % 12);
    }
    text += draw % 11 == 0 ? ".\n" : draw % 7 == 0 ? "  " : " ";
    if (draw % 97 == 0) text += "caf\xc3\xa9 \xe4\xb8\x96\xe7\x95\x8c";
  }
  return text;
}

std::string model(const char* settings) {
  class Lines final : public sentencepiece::SentenceIterator {
   public:
    bool done() const override { return at_ == 400; }
    void Next() override { line_ = words(++at_, 12); }
    const std::string& value() const override { return line_; }
    sentencepiece::util::Status status() const override { return {}; }

   private:
    uint64_t at_ = 0;
    std::string line_ = words(0, 12);
  };
  Lines lines;
  std::string bytes;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      std::string("--minloglevel=2 --vocab_size=380 --byte_fallback=true ") + settings, &lines,
      &bytes);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return bytes;
}

constexpr const char* kUnigramAsIs =
    "--model_type=unigram --hard_vocab_limit=false --add_dummy_prefix=false "
    "--remove_extra_whitespaces=false";
constexpr const char* kSettings[] = {
    "--model_type=bpe --normalization_rule_name=identity --remove_extra_whitespaces=false",
    "--model_type=bpe", "--model_type=unigram --hard_vocab_limit=false", kUnigramAsIs,
    "--model_type=unigram --hard_vocab_limit=false --user_defined_symbols=ab,cde,x"};

TEST(SentencePiece, EncodesAsTheLibraryDoesAndMayBeCut) {
  for (const char* settings : kSettings) {
    MemoryFileSystem files;
    const std::string bytes = model(settings);
    write_text(files, "t/tokenizer.model", bytes);
    const auto t = open_tokenizer(files, "t");
    EXPECT_EQ(t->name(), "sentencepiece");
    EXPECT_EQ(t->end_of_document(), 2);
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.LoadFromSerializedProto(bytes).ok());
    EXPECT_EQ(t->vocabulary_size(), library.GetPieceSize());
    for (const std::string& text :
         {words(9001, 300), std::string(), std::string(" "), std::string("  a b  c "),
          std::string("a\n\nb"), std::string("\xc2\xa0x \xe2\x96\x81y"), std::string(3000, 'a')}) {
      std::vector<int> expected;
      ASSERT_TRUE(library.Encode(text, &expected).ok());
      const std::vector<int32_t> ids = t->encode(text);
      EXPECT_EQ(ids, expected) << settings << ": " << text.substr(0, 40);
      std::string decoded;
      ASSERT_TRUE(library.Decode(expected, &decoded).ok());
      EXPECT_EQ(t->decode(ids), decoded) << settings;
      int pieces = 0;
      for (size_t position = 0; position <= text.size(); position += 1 + text.size() / 200) {
        const size_t cut = t->cut(text, position);
        if (cut == 0) continue;
        ++pieces;
        std::vector<int32_t> both = t->encode(std::string_view(text).substr(0, cut));
        t->encode_rest(std::string_view(text).substr(cut), both);
        EXPECT_EQ(both, ids) << settings << ": " << position;
      }
      if (text.size() > 500 && text[0] != text[1]) {
        EXPECT_GT(pieces, 150) << settings;
      }
    }
  }
}

// A text that continues another without a space loses nothing: its first letter stays.
TEST(SentencePiece, WhatContinuesKeepsItsFirstLetter) {
  for (const char* settings : kSettings) {
    MemoryFileSystem files;
    write_text(files, "t/tokenizer.model", model(settings));
    const auto t = open_tokenizer(files, "t");
    for (const std::string text : {"abcd efgh", " abcd"}) {
      std::vector<int32_t> ids;
      t->encode_rest(text, ids);
      const std::string back = t->decode_rest(ids);
      EXPECT_EQ(back.substr(back.find('a')), text.substr(text.find('a'))) << settings;
    }
  }
}

TEST(SentencePiece, ControlTokensAreFoundInWhatATemplateWrote) {
  MemoryFileSystem files;
  write_text(files, "t/tokenizer.model", model(kSettings[0]));
  const auto t = open_tokenizer(files, "t");
  const std::string text = "<s>a b</s> c</s>";
  std::string origins(text.size(), 0);  // of the template
  std::vector<int32_t> ids;
  t->encode_chat(text, origins, {}, false, ids);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 2);
  origins[8] = 2;  // a byte of the first </s> is a user's
  ids.clear();
  t->encode_chat(text, origins, {}, false, ids);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 2), 1);
}

TEST(SentencePiece, IsTrainedOnSourcesAndGivesTextBack) {
  MemoryFileSystem files;
  write_text(files, "in/a.txt", words(1, 4000));
  write_text(files, "in/b.txt", words(2, 4000));
  TrainTokenizerOptions options;
  options.sources = {"in"};
  options.output = "out/x.model";
  options.vocabulary = 400;
  const TrainTokenizerResult result = train_tokenizer(files, options);
  EXPECT_EQ(result.vocabulary, 400);
  EXPECT_EQ(result.source_bytes, files.size_bytes("in/a.txt") + files.size_bytes("in/b.txt"));
  const auto t = open_tokenizer(files, "out/x.model");
  const std::string text = " Any\n\n\ttext  \xf0\x9f\x91\xa8" + words(3, 50);
  EXPECT_EQ(t->decode(t->encode(text)), text);
  EXPECT_LT(t->encode(words(4, 500)).size(), words(4, 500).size() * 2 / 3);

  const auto training = [&](const auto& change) {
    TrainTokenizerOptions changed = options;
    change(changed);
    return error_of(ErrorKind::usage, [&] { train_tokenizer(files, changed); });
  };
  EXPECT_TRUE(contains(training([](auto&) {}), "exists already"));
  EXPECT_TRUE(contains(training([](auto& o) { o.output = "x.bin"; }), ".model"));
  EXPECT_TRUE(contains(training([](auto& o) { o.overwrite = true, o.kind = "word"; }), "unigram"));
  EXPECT_TRUE(contains(training([](auto& o) { o.overwrite = true, o.vocabulary = 9; }), "small"));
  EXPECT_TRUE(
      contains(training([](auto& o) { o.overwrite = true, o.vocabulary = 90000; }), "90000"));
  options.overwrite = true;
  options.threads = 1;
  EXPECT_EQ(train_tokenizer(files, options).hash, result.hash);
  options.sample_bytes = result.source_bytes / 4;
  const int64_t sampled = train_tokenizer(files, options).line_bytes;
  EXPECT_LE(sampled, options.sample_bytes);
  EXPECT_GT(sampled, options.sample_bytes * 3 / 4);
}

TEST(SentencePiece, CompressedTextIsSampledByWhatItHolds) {
  MemoryFileSystem files;
  std::string text;  // eight times as large as its file, or more
  for (int i = 0; i < 40; ++i) text += words(1, 4000);
  write_text(files, "in/a.txt.gz", gzip(text));
  ASSERT_LT(files.size_bytes("in/a.txt.gz") * 8, static_cast<int64_t>(text.size()));
  TrainTokenizerOptions options;
  options.sources = {"in"};
  options.output = "x.model";
  options.vocabulary = 400;
  options.sample_bytes = files.size_bytes("in/a.txt.gz");
  const TrainTokenizerResult result = train_tokenizer(files, options);
  EXPECT_LE(result.line_bytes, options.sample_bytes);
  EXPECT_GT(result.line_bytes, options.sample_bytes / 2);
}

TEST(SentencePiece, DamageAndOptionsAreErrors) {
  MemoryFileSystem files;
  write_text(files, "x.model", "not a model");
  EXPECT_TRUE(contains(error_of(ErrorKind::corrupt, [&] { open_tokenizer(files, "x.model"); }),
                       "'x.model'"));
  write_text(files, "y.model", model(kSettings[1]));
  TokenizerOptions options;
  options.special = true;
  error_of(ErrorKind::unsupported, [&] { open_tokenizer(files, "y.model", options); });
  options.special = false;
  options.begin = "auto";
  EXPECT_EQ(open_tokenizer(files, "y.model", options)->begin_of_document(),
            std::vector<int32_t>{1});
  options.begin = "model";
  EXPECT_EQ(open_tokenizer(files, "y.model", options)->begin_of_document(),
            std::vector<int32_t>{1});
  write_text(files, "tokenizer_config.json", R"({"add_bos_token": false})");
  EXPECT_TRUE(open_tokenizer(files, "y.model", options)->begin_of_document().empty());
  options.end = "<end>";
  EXPECT_TRUE(contains(
      error_of(ErrorKind::usage, [&] { open_tokenizer(files, "y.model", options); }), "<end>"));
  // Of a model that was tuned with more tokens than its .model has.
  write_text(files, "tuned/config.json", R"({"eos_token_id": 32000})");
  write_text(files, "tuned/tokenizer.model", model(kSettings[1]));
  const std::string message = error_of(ErrorKind::usage, [&] { open_tokenizer(files, "tuned"); });
  EXPECT_TRUE(contains(message, "tuned/config.json: eos_token_id is 32000")) << message;
  EXPECT_TRUE(contains(message, "--eos")) << message;
  options = {};
  options.end = "</s>";
  const auto tuned = open_tokenizer(files, "tuned", options);
  EXPECT_EQ(tuned->end_of_document(), 2);
  store_tokenizer(files, *tuned, "tuned/stored.json");
  std::string stored = read_file(files, "tuned/stored.json");
  const std::string end = "\"end_of_document\": 2";
  ASSERT_TRUE(contains(stored, end)) << stored;
  stored.replace(stored.find(end), end.size(), "\"end_of_document\": 32000");
  write_text(files, "tuned/stored.json", stored);
  EXPECT_TRUE(contains(
      error_of(ErrorKind::corrupt, [&] { load_tokenizer_file(files, "tuned/stored.json"); }),
      "32000"));
  files.create_directories("empty");
  EXPECT_TRUE(contains(error_of(ErrorKind::usage, [&] { open_tokenizer(files, "empty"); }),
                       "tokenizer.model"));
}

}  // namespace
}  // namespace tutti::data
