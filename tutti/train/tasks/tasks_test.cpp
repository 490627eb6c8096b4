#include "tutti/train/tasks/tasks.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::flat_parameters;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::randomize;

constexpr const char* kQuestions =
    R"({"ctx": "A man", "endings": ["eats.", "is a very long story", "x", "swims"], "label": 1, "id": 7}

{"ctx": "Ends in space ", "endings": ["b", "a"], "label": "0"}
{"ctx": "", "endings": ["no context", "at all", "here"], "label": 2}
{"ctx": "This context does not fit into the model that reads it, by far, as it is too long for that", "endings": ["one", "two"], "label": 1}
)";

spec::Recipe byte_recipe(spec::Recipe recipe) {
  recipe.model.vocabulary = 257;
  recipe.model.context = 64;
  return recipe;
}

LoadedRun loaded(const spec::Recipe& recipe, Trainer& trainer) {
  trainer.initialize();
  randomize(trainer, 6, 0.3F);
  LoadedRun run;
  run.recipe = recipe;
  run.master = flat_parameters(trainer);
  return run;
}

// Log-likelihood of `ending` after `context`, one token at a time from the full logits.
double plain_score(Trainer& trainer, const std::vector<int32_t>& context,
                   const std::vector<int32_t>& ending) {
  const int64_t length = trainer.recipe().model.context;
  const int64_t vocabulary = trainer.recipe().model.vocabulary;
  std::vector<int32_t> all = context;
  all.insert(all.end(), ending.begin(), ending.end());
  if (static_cast<int64_t>(all.size()) > length + 1) all.erase(all.begin(), all.end() - length - 1);
  std::vector<int32_t> padded = all;
  padded.resize(static_cast<size_t>(length), 0);
  const std::vector<float> logits = trainer.logits({padded.data(), padded.data(), 0});
  double sum = 0;
  for (size_t i = all.size() - ending.size(); i < all.size(); ++i) {
    const float* row = logits.data() + static_cast<int64_t>(i - 1) * vocabulary;
    double total = 0;
    for (int64_t v = 0; v < vocabulary; ++v) total += std::exp(static_cast<double>(row[v]));
    sum += static_cast<double>(row[all[i]]) - std::log(total);
  }
  return sum;
}

void expect_equals_plain(spec::Recipe recipe) {
  recipe = byte_recipe(recipe);
  recipe.batch = {1, 1, recipe.model.context};
  MemoryFileSystem files;
  write_file_atomic(files, "q.jsonl", kQuestions);
  const std::vector<Question> questions = read_questions(files, "q.jsonl");
  ASSERT_EQ(questions.size(), 4U);
  EXPECT_EQ(questions[1].line, 3);
  Trainer trainer(recipe);
  const LoadedRun run = loaded(recipe, trainer);
  const data::ByteTokenizer tokenizer;
  for (const int64_t batch : {1, 2, 5, 100}) {
    SCOPED_TRACE(batch);
    int64_t last = 0;
    const TaskResult result = score_questions(run, tokenizer, "q.jsonl", questions, batch,
                                              [&](int64_t done, int64_t) { last = done; });
    EXPECT_EQ(last, 4 + 2 + 3 + 2);
    EXPECT_EQ(result.truncated, 2);
    int64_t correct[3] = {0, 0, 0};
    for (size_t q = 0; q < questions.size(); ++q) {
      double highest[3] = {-1e9, -1e9, -1e9};
      int64_t chosen[3] = {0, 0, 0};
      for (size_t e = 0; e < questions[q].endings.size(); ++e) {
        const std::string& ending = questions[q].endings[e];
        std::vector<int32_t> context = tokenizer.encode(questions[q].context);
        if (context.empty()) context = {256};
        const bool space = q == 0 || q == 3;
        const std::vector<int32_t> tail = tokenizer.encode(space ? " " + ending : ending);
        const double score = plain_score(trainer, context, tail);
        EXPECT_NEAR(result.scores[q][e], score, 1e-3 * std::abs(score)) << q << " " << e;
        const double lengths[3] = {1, static_cast<double>(ending.size()),
                                   static_cast<double>(tail.size())};
        for (int k = 0; k < 3; ++k) {
          if (score / lengths[k] > highest[k]) {
            highest[k] = score / lengths[k];
            chosen[k] = static_cast<int64_t>(e);
          }
        }
      }
      for (int k = 0; k < 3; ++k) correct[k] += chosen[k] == questions[q].label ? 1 : 0;
    }
    EXPECT_EQ(result.correct, correct[0]);
    EXPECT_EQ(result.correct_norm, correct[1]);
    EXPECT_EQ(result.correct_norm_tokens, correct[2]);
  }
}

TEST(Tasks, ScoresEqualAPlainComputationForGpt) { expect_equals_plain(gpt_recipe()); }
TEST(Tasks, ScoresEqualAPlainComputationForLlama) { expect_equals_plain(llama_recipe()); }

TEST(Tasks, BrokenLinesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"ctx\": \"a\"", "q.jsonl:2"},
      {"[1]", "'ctx' is missing"},
      {R"({"endings": ["a", "b"], "label": 0})", "'ctx' is missing"},
      {R"({"ctx": "a", "label": 0})", "'endings' is missing"},
      {R"({"ctx": "a", "endings": "b", "label": 0})", "'endings' has the wrong type"},
      {R"({"ctx": "a", "endings": ["b"], "label": 0})", "1 endings"},
      {R"({"ctx": "a", "endings": ["b", ""], "label": 0})", "an ending is empty"},
      {R"({"ctx": "a", "endings": ["b", "c"]})", "'label' is missing"},
      {R"({"ctx": "a", "endings": ["b", "c"], "label": 2})", "'label' 2"},
      {R"({"ctx": "a", "endings": ["b", "c"], "label": "x"})", "'label' \"x\""},
      {R"({"ctx": "a", "endings": ["b", "c"], "label": 0, "label": 1})",
       "key 'label' is given twice"},
  };
  for (const auto& [line, message] : cases) {
    MemoryFileSystem files;
    write_file_atomic(
        files, "q.jsonl",
        "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0}\n" + std::string(line) + "\n");
    try {
      read_questions(files, "q.jsonl");
      ADD_FAILURE() << "accepted: " << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::corrupt) << line;
      EXPECT_NE(std::string(error.what()).find("q.jsonl:2"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
  MemoryFileSystem files;
  write_file_atomic(files, "q.jsonl", "\n\n");
  EXPECT_THROW(read_questions(files, "q.jsonl"), Error);
}

TEST(Tasks, AnEndingLongerThanTheContextIsAnError) {
  spec::Recipe recipe = byte_recipe(gpt_recipe());
  recipe.batch = {1, 1, 8};
  Trainer trainer(recipe);
  const LoadedRun run = loaded(recipe, trainer);
  const std::vector<Question> questions = {{9, "a", {"b", std::string(65, 'c')}, 0}};
  try {
    score_questions(run, data::ByteTokenizer(), "q.jsonl", questions, 4, [](int64_t, int64_t) {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("q.jsonl:9: ending 1 has 66 tokens"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti::train
