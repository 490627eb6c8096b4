// Runs that train adapters: checkpoints that refer to their base, resume, export.
#include <gtest/gtest.h>

#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/train/session/merged_run.h"
#include "tutti/train/tasks/evaluate.h"
#include "tutti/train/tasks/interchange.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

using testing::SessionTest;
using testing::write_documents;

class AdapterSessionTest : public SessionTest {
 protected:
  AdapterSessionTest() {
    recipe_.optimizer.learning_rate = 1e-2;
    recipe_.train.steps = 40;
    run("base");
    recipe_.train.steps = 20;
    recipe_.checkpoint.initialize_from = "base";
    recipe_.lora = {4, 8, 0.1, {"qkv", "output", "mlp"}};
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
};

TEST_F(AdapterSessionTest, CheckpointsHoldAdaptersAndReferToTheirBase) {
  run("tuned");
  const auto kept = checkpoint::list_checkpoints(files_, "tuned/checkpoints");
  const checkpoint::Reader reader(files_, kept.back().path);
  for (const checkpoint::TensorRecord& tensor : reader.manifest().tensors) {
    EXPECT_NE(tensor.name.find(".lora_"), std::string::npos) << tensor.name;
  }
  ASSERT_TRUE(reader.manifest().state.base);
  EXPECT_EQ(reader.manifest().state.base->path, "base/checkpoints/step-00000040");
  // Loaded, they are one model: the loss on the corpus is that of the training.
  const LoadedRun loaded = load_run(files_, "tuned", false);
  EXPECT_EQ(loaded.base, "base/checkpoints/step-00000040");
  const RunEvaluation evaluation = evaluate_run(files_, loaded, "validation", [](auto, auto) {});
  EXPECT_EQ(evaluation.loss, events<telemetry::EvaluationDone>().back().loss);
}

TEST_F(AdapterSessionTest, ResumeEqualsTheUninterruptedRun) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    recipe_.precision = precision;
    recipe_.batch.micro = 1;
    expect_resume_to_the_bit(fmt::format("tuned-{}", static_cast<int>(precision)), 10);
  }
}

// Over packed documents too, where dropout is drawn for rows of the whole run.
TEST_F(AdapterSessionTest, PackedDocumentsResumeToTheBit) {
  write_documents(files_, "documents", 90, 0);
  recipe_.data.train = "documents";
  recipe_.data.packing = spec::Packing::documents;
  recipe_.batch = {4, 2, 12};
  run("whole");
  const std::vector<double> whole = losses();
  EXPECT_LT(whole.back(), whole.front());
  events_.clear();
  run("parts", 7);
  run("parts");
  EXPECT_EQ(losses(), whole);
  EXPECT_EQ(parameters("parts"), parameters("whole"));
}

// As a model of Hugging Face a run has its adapters merged; merged first, it exports the same.
TEST_F(AdapterSessionTest, ExportsMerged) {
  run("tuned");
  const ExportedRun exported = export_run(files_, "tuned", "out", {});
  EXPECT_EQ(exported.step, 20);
  EXPECT_FALSE(files_.exists("out/merged"));
  LoadedRun tuned = load_run(files_, "tuned", false);
  const auto loss = [&](const LoadedRun& loaded) {
    return evaluate_run(files_, loaded, "validation", [](auto, auto) {}).loss;
  };
  const double tuned_loss = loss(tuned);
  write_merged(files_, tuned, checkpoints_path("merged"));
  write_file_atomic(files_, recipe_path("merged"), spec::to_yaml(merged_recipe(tuned)));
  EXPECT_NEAR(loss(load_run(files_, "merged", false)), tuned_loss, 1e-5);
  EXPECT_GT(loss(load_run(files_, "base", false)), tuned_loss + 1e-3);
  export_run(files_, "merged", "again", {});
  const checkpoint::HfFolder a(files_, "out"), b(files_, "again");
  EXPECT_EQ(a.tensor_names(), b.tensor_names());
  for (const std::string& name : a.tensor_names()) EXPECT_EQ(a.bytes(name), b.bytes(name)) << name;
}

TEST_F(AdapterSessionTest, MissingChangedOrMovedBase) {
  recipe_.lora = {4, 8, 0, {"qkv"}};
  run("tuned", 10);
  files_.rename("base", "elsewhere");
  EXPECT_NE(error_of("tuned").find("'base/checkpoints/step-00000040' is missing"),
            std::string::npos)
      << error_of("tuned");
  EXPECT_THROW(load_run(files_, "tuned", false), Error);
  recipe_.checkpoint.initialize_from = "elsewhere";
  EXPECT_EQ(error_of("tuned"), "no error");
  // Another model at the same place.
  files_.remove_tree("elsewhere");
  recipe_.lora = {};
  recipe_.checkpoint.initialize_from = "";
  recipe_.train.steps = 40;
  recipe_.train.seed = 77;
  run("base");
  EXPECT_NE(error_of_load("tuned").find("no longer the base checkpoint"), std::string::npos)
      << error_of_load("tuned");
}

TEST_F(AdapterSessionTest, OtherAdaptersAndAdaptersAsBaseAreRefused) {
  run("tuned", 10);
  recipe_.lora.rank = 8;
  EXPECT_NE(error_of("tuned").find("lora.rank"), std::string::npos) << error_of("tuned");
  recipe_.checkpoint.initialize_from = "tuned";
  EXPECT_NE(error_of("again").find("tutti checkpoint merge"), std::string::npos)
      << error_of("again");
  recipe_.checkpoint.initialize_from = "";
  EXPECT_NE(error_of("again").find("checkpoint.initialize_from"), std::string::npos);
}

}  // namespace
}  // namespace tutti::train
