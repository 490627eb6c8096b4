#include "tutti/train/tasks/checkpoint_sampler.h"

#include <gtest/gtest.h>

#include "tutti/data/corpus/format.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

class CheckpointSamplerTest : public testing::SessionTest {
 protected:
  CheckpointSamplerTest() {
    recipe_.model.vocabulary = 257;
    data::store_tokenizer(files_, data::ByteTokenizer(), data::corpus_paths("train").tokenizer);
  }

  std::string refusal() {
    try {
      run("refused");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "no error";
  }
};

// Also across a resume, and whatever is sampled, training computes the same bits.
TEST_F(CheckpointSamplerTest, LeavesTheLossesAsTheyAre) {
  run("without");
  const std::vector<double> whole = losses();
  EXPECT_TRUE(events<telemetry::TextGenerated>().empty());

  events_.clear();
  recipe_.checkpoint.sample_tokens = 4;
  recipe_.checkpoint.sample_prompt = "ab";
  run("with", 10);
  run("with");
  EXPECT_EQ(losses(), whole);
  EXPECT_EQ(parameters("with"), parameters("without"));

  const auto saved = events<telemetry::CheckpointSaved>();
  const auto texts = events<telemetry::TextGenerated>();
  ASSERT_EQ(texts.size(), saved.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(texts[i].step, saved[i].step);
    EXPECT_EQ(texts[i].prompt, "ab");
    EXPECT_GT(texts[i].tokens, 0);
    EXPECT_LE(texts[i].tokens, 4);
    EXPECT_EQ(static_cast<int64_t>(texts[i].text.size()), texts[i].tokens);
  }
}

TEST_F(CheckpointSamplerTest, RefusesWhatItCannotContinue) {
  recipe_.checkpoint.sample_tokens = 4;
  recipe_.checkpoint.sample_prompt = std::string(100, 'x');
  EXPECT_NE(refusal().find("checkpoint.sample_prompt: 100 tokens exceed"), std::string::npos);
  files_.remove_file(data::corpus_paths("train").tokenizer);
  EXPECT_NE(refusal().find("checkpoint.sample_tokens: 4 needs a tokenizer, but 'train'"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::train
