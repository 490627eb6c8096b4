// Whole runs that learn from a teacher: which one they take, what they say of it, resume, errors.
#include <gtest/gtest.h>

#include "tutti/base/json.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/tokenizers/char_tokenizer.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/train/session/merged_run.h"
#include "tutti/train/tasks/evaluate.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

using testing::llama_recipe;
using testing::SessionTest;
using testing::write_documents;

class DistillSessionTest : public SessionTest {
 protected:
  // A Llama of another size, trained on the corpus.
  DistillSessionTest() {
    student_ = recipe_;
    recipe_.model = llama_recipe().model;
    recipe_.model.layers = 3;
    recipe_.optimizer.learning_rate = 1e-2;
    recipe_.train.steps = 40;
    run("teacher");
    recipe_ = student_;
    recipe_.distill.teacher = "teacher";
    recipe_.distill.temperature = 2;
    recipe_.distill.weight = 0.6;
    events_.clear();
  }
  std::string error_of(const std::string& folder) {
    try {
      run(folder);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  void expect_error(const std::string& folder, const std::vector<std::string>& words) {
    const std::string message = error_of(folder);
    for (const std::string& word : words) {
      EXPECT_NE(message.find(word), std::string::npos) << message;
    }
  }

  spec::Recipe student_;
};

TEST_F(DistillSessionTest, EventsCheckpointsAndRecipeNameTheTeacher) {
  run("student");
  const std::string path = "teacher/checkpoints/step-00000040";
  const auto kept = checkpoint::list_checkpoints(files_, "student/checkpoints");
  const checkpoint::Reader reader(files_, kept.back().path);
  ASSERT_TRUE(reader.manifest().state.teacher);
  EXPECT_EQ(reader.manifest().state.teacher->checkpoint.path, path);
  EXPECT_EQ(reader.manifest().state.teacher->step, 40);
  EXPECT_EQ(reader.manifest().tensors.size(),
            3 * spec::param_layout(spec::param_table(recipe_.model)).params.size());
  const auto begun = events<telemetry::RunStarted>();
  ASSERT_TRUE(begun.front().teacher);
  EXPECT_EQ(begun.front().teacher->path, path);
  EXPECT_EQ(begun.front().teacher->step, 40);
  EXPECT_EQ(begun.front().teacher->model, "test-llama");
  EXPECT_EQ(begun.front().teacher->manifest_hash,
            reader.manifest().state.teacher->checkpoint.manifest_xxh3);
  EXPECT_NE(begun.front().mfu_formula.find("teacher"), std::string::npos);
  for (const telemetry::StepDone& step : events<telemetry::StepDone>()) {
    ASSERT_TRUE(step.parts);
    EXPECT_EQ(step.loss, (1 - 0.6) * step.parts->cross_entropy + 0.6 * step.parts->divergence);
  }
  // What is evaluated is the plain loss of the student, which needs its teacher no more.
  files_.remove_tree("teacher");
  const LoadedRun loaded = load_run(files_, "student", false);
  EXPECT_EQ(loaded.recipe.distill.model->layers, 3);
  const RunEvaluation evaluation = evaluate_run(files_, loaded, "validation", [](auto, auto) {});
  EXPECT_EQ(evaluation.loss, events<telemetry::EvaluationDone>().back().loss);
}

TEST_F(DistillSessionTest, ResumeEqualsTheUninterruptedRun) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    recipe_.precision = precision;
    recipe_.batch.micro = 1;
    recipe_.model.dropout = 0.1;
    expect_resume_to_the_bit(fmt::format("student-{}", static_cast<int>(precision)), 10);
  }
}

// Adapters of a packed run, whose teacher sees the same documents.
TEST_F(DistillSessionTest, AdaptersOverPackedDocumentsResumeToTheBit) {
  recipe_ = student_;
  run("base");
  write_documents(files_, "documents", 90, 0);
  recipe_.checkpoint.initialize_from = "base";
  recipe_.lora = {4, 8, 0.1, {"qkv", "mlp"}};
  recipe_.distill.teacher = "teacher";
  recipe_.data.train = "documents";
  recipe_.data.packing = spec::Packing::documents;
  recipe_.batch = {4, 2, 12};
  recipe_.optimizer.learning_rate = 1e-2;
  events_.clear();
  run("whole");
  const std::vector<double> whole = losses();
  EXPECT_LT(whole.back(), whole.front());
  events_.clear();
  run("parts", 7);
  run("parts");
  EXPECT_EQ(losses(), whole);
  EXPECT_EQ(parameters("parts"), parameters("whole"));
}

TEST_F(DistillSessionTest, AResumedRunKeepsTheTeacherThatItBeganWith) {
  run("whole");
  const std::vector<double> whole = losses();
  events_.clear();
  run("parts", 10);
  // The teacher's own run continues; its earlier checkpoints stay.
  const spec::Recipe student = recipe_;
  recipe_ = load_recipe(files_, "teacher");
  recipe_.train.steps = 60;
  recipe_.checkpoint.keep_last = 100;
  run("teacher");
  recipe_ = student;
  std::erase_if(events_, [&](const telemetry::Event& event) {
    const auto* step = std::get_if<telemetry::StepDone>(&event.body);
    return step != nullptr && !step->parts;
  });
  run("parts");
  EXPECT_EQ(losses(), whole);
  // Moved, it is found where the recipe says; gone or another, it is an error.
  run("moved", 10);
  files_.rename("teacher", "elsewhere");
  recipe_ = load_recipe(files_, "moved");
  expect_error("moved", {"distill.teacher", "teacher/checkpoints/step-00000060' is missing"});
  recipe_.distill.teacher = "elsewhere";
  EXPECT_EQ(error_of("moved"), "no error");
  files_.remove_tree("elsewhere/checkpoints/step-00000060");
  recipe_.train.steps = 30;
  expect_error("moved", {"distill.teacher", "is missing"});
}

TEST_F(DistillSessionTest, TeachersThatDoNotFitAreRefused) {
  recipe_.distill.teacher = "nowhere";
  expect_error("a", {"distill.teacher", "'nowhere' is not a run folder"});
  EXPECT_FALSE(files_.exists("a"));
  recipe_.distill.teacher = "teacher";
  recipe_.model.vocabulary = 110;
  expect_error("a", {"distill.teacher: 'teacher'", "101", "110", "model.vocabulary=101"});
  recipe_.model.vocabulary = 101;
  recipe_.model.context = recipe_.batch.sequence = 17;
  expect_error("a", {"distill.teacher: 'teacher'", "16 tokens", "batch.sequence=16"});
  recipe_.model.context = recipe_.batch.sequence = 16;
  recipe_.distill.model = llama_recipe().model;
  expect_error("a", {"distill.model: layers is 2", "3 in the teacher 'teacher'"});
}

TEST_F(DistillSessionTest, AnotherTokenizerIsRefused) {
  const auto store = [&](const std::string& path, const std::vector<char32_t>& characters) {
    data::store_tokenizer(files_, data::CharTokenizer(characters, false), path);
  };
  const std::string corpus = data::corpus_paths("train").tokenizer;
  store(corpus, {U'a', U'b', U'c'});
  EXPECT_EQ(error_of("a"), "no error");  // the teacher has none to compare
  store(tokenizer_path("teacher"), {U'a', U'b', U'c'});
  EXPECT_EQ(error_of("b"), "no error");
  store(tokenizer_path("teacher"), {U'a', U'b', U'd'});
  expect_error("c", {"distill.teacher: 'teacher' has another tokenizer", "teacher/tokenizer.json",
                     corpus, "--tokenizer"});
}

// A tuned model teaches as its merged copy does.
TEST_F(DistillSessionTest, AdaptersOfATeacherAreMerged) {
  const spec::Recipe student = recipe_;
  recipe_ = load_recipe(files_, "teacher");
  recipe_.checkpoint.initialize_from = "teacher";
  recipe_.lora = {4, 8, 0, {"qkv", "output", "mlp"}};
  run("tuned");
  LoadedRun tuned = load_run(files_, "tuned", false);
  write_merged(files_, tuned, checkpoints_path("merged"));
  write_file_atomic(files_, recipe_path("merged"), spec::to_yaml(merged_recipe(tuned)));
  recipe_ = student;
  std::vector<std::vector<double>> runs;
  for (const char* teacher : {"teacher", "tuned", "merged"}) {
    recipe_.distill.teacher = teacher;
    events_.clear();
    run(std::string("from-") + teacher);
    runs.push_back(losses());
  }
  EXPECT_EQ(runs[1], runs[2]);
  EXPECT_NE(runs[0], runs[1]);
}

}  // namespace
}  // namespace tutti::train
