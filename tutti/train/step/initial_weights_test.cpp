// Runs that start from the parameters of another, on an in-memory disk.
#include "tutti/train/step/initial_weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/writer.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

using testing::gpt_recipe;
using testing::llama_recipe;

class InitialWeights : public ::testing::Test {
 protected:
  // A run whose newest checkpoint is step 7, with parameters unlike those of any seed.
  void save(const spec::Recipe& recipe) {
    Trainer trainer(recipe);
    trainer.initialize();
    testing::randomize(trainer, 3, 0.1F);
    RunState state;
    state.step = 7;
    checkpoint::write_checkpoint(files_, "base/checkpoints", checkpoint_tensors(trainer),
                                 to_checkpoint_state(state, recipe));
  }

  std::string error_of(const spec::Recipe& recipe, const std::string& folder = "base") {
    try {
      load_weights(files_, find_weights(files_, folder), recipe, [](const auto&, const auto&) {});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  MemoryFileSystem files_;
};

TEST_F(InitialWeights, AreThoseOfTheCheckpointAndMomentsAreZero) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    spec::Recipe recipe = llama_recipe();
    recipe.precision = precision;
    save(recipe);
    for (const char* folder :
         {"base", "base/", "base/checkpoints", "base/checkpoints/step-00000007"}) {
      Trainer expected(recipe), trainer(recipe);
      testing::randomize(expected, 3, 0.1F);
      trainer.initialize();
      load_weights(files_, find_weights(files_, folder), recipe,
                   [&](const spec::PlacedParam& placed, const std::vector<float>& values) {
                     trainer.state().set_parameter(placed, values.data());
                   });
      trainer.state_changed();
      const auto a = expected.state().tensors(), b = trainer.state().tensors();
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        int64_t count = 1;
        for (const int64_t dim : a[i].shape) count *= dim;
        const auto bytes = static_cast<size_t>(count) * sizeof(float);
        const std::vector<char> zeros(bytes, 0);
        const bool moment = a[i].name.starts_with("adamw.");
        EXPECT_EQ(std::memcmp(b[i].data, moment ? zeros.data() : a[i].data, bytes), 0) << a[i].name;
      }
      // What the model computes with as well.
      testing::RandomBatches one(recipe, 1), two(recipe, 1);
      EXPECT_EQ(expected.logits(one.next()), trainer.logits(two.next()));
    }
  }
}

TEST_F(InitialWeights, FirstDifferingTensorIsNamedWithBothShapes) {
  save(gpt_recipe());
  spec::Recipe wider = gpt_recipe();
  wider.model.ffn = 48;
  const std::string message = error_of(wider);
  EXPECT_NE(message.find("'blocks.0.mlp.up.weight' is [40, 24] there and [48, 24]"),
            std::string::npos)
      << message;
}

TEST_F(InitialWeights, VocabularyPositionsAndTyingSayWhatToSet) {
  save(gpt_recipe());
  spec::Recipe other = gpt_recipe();
  other.model.vocabulary = 90;
  EXPECT_NE(error_of(other).find("model.vocabulary=101"), std::string::npos) << error_of(other);
  other = gpt_recipe();
  other.model.context = 32;
  EXPECT_NE(error_of(other).find("model.context=16"), std::string::npos) << error_of(other);
  other = gpt_recipe();
  other.model.tied_embeddings = false;
  EXPECT_NE(error_of(other).find("model.tied_embeddings=true"), std::string::npos);
  save(other);
  EXPECT_NE(error_of(gpt_recipe()).find("model.tied_embeddings=false"), std::string::npos);
}

TEST_F(InitialWeights, WhatNoShapeShowsIsComparedToo) {
  save(llama_recipe());
  spec::Recipe other = llama_recipe();
  other.model.heads = 3;
  other.model.kv_heads = 1;
  other.model.head_dim = 8;
  EXPECT_NE(error_of(other).find("head"), std::string::npos) << error_of(other);
  // Rotation knows no longest sequence.
  other = llama_recipe();
  other.model.context = 64;
  EXPECT_EQ(error_of(other), "no error");
}

TEST_F(InitialWeights, FolderWithoutCheckpointIsNotFound) {
  files_.create_directories("empty");
  EXPECT_NE(error_of(gpt_recipe(), "empty").find("checkpoint.initialize_from: 'empty'"),
            std::string::npos);
  EXPECT_NE(error_of(gpt_recipe(), "nowhere").find("no valid checkpoint"), std::string::npos);
}

}  // namespace
}  // namespace tutti::train
