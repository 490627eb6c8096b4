#include "tutti/train/tasks/evaluate.h"

#include <string>
#include <vector>

#include "tutti/data/corpus/writer.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/train/testing/session_fixture.h"

namespace tutti::train {
namespace {

class EvaluateTest : public testing::SessionTest {
 protected:
  // Documents of bytes, each ended.
  void write(const std::vector<std::string>& documents) {
    data::CorpusWriter writer(files_, "c", DType::u16);
    std::vector<int32_t> ids;
    for (const std::string& text : documents) {
      ids.assign(text.begin(), text.end());
      ids.push_back(tokenizer_.end_of_document());
      writer.append(ids);
      writer.end_document();
      tokens_ += static_cast<int64_t>(ids.size());
    }
    writer.finish();
    writer.commit();
  }
  int64_t bytes(spec::Packing packing, bool with_tokenizer = true) {
    spec::DataConfig data;
    data.packing = packing;
    return predicted_text_bytes(files_, "c", with_tokenizer ? &tokenizer_ : nullptr, data);
  }
  data::ByteTokenizer tokenizer_;
  int64_t tokens_ = 0;
};

TEST_F(EvaluateTest, BytesAreThoseOfWhatIsPredicted) {
  write({"prompt:answer", "ab", ""});
  EXPECT_EQ(bytes(spec::Packing::none), 15);
  EXPECT_EQ(bytes(spec::Packing::documents), 15 - 2);  // first tokens are nothing's target
  write_file_atomic(files_, "c.mask", data::loss_mask_bytes({7, 0, 1}, tokens_));
  EXPECT_EQ(bytes(spec::Packing::none), 6 + 2);
  EXPECT_EQ(bytes(spec::Packing::documents), 6 + 1);
  EXPECT_EQ(bytes(spec::Packing::none, false), 0);
  // The description counts prompts, too: it is not of what is predicted.
  write_file_atomic(files_, "c.meta.json", "{");
  EXPECT_EQ(bytes(spec::Packing::none), 6 + 2);
}

// An import evaluated as the recipe cuts its corpora that tunes it: the loss of training's own
// validation, of the same parameters, to the bit.
TEST_F(EvaluateTest, AnotherPackingGivesWhatTrainingWithItMeasures) {
  testing::write_documents(files_, "documents", 90, 0);
  recipe_.data = {"documents", "documents"};
  recipe_.data.packing = spec::Packing::documents;
  run("packed");
  LoadedRun loaded = load_run(files_, "packed", false);
  loaded.recipe.data.packing = spec::Packing::none;
  const auto evaluate = [&] {
    return evaluate_run(files_, loaded, "documents", [](auto, auto) {});
  };
  const RunEvaluation stream = evaluate();
  loaded.recipe.data.packing = spec::Packing::documents;
  const RunEvaluation packed = evaluate();
  EXPECT_EQ(packed.loss, events<telemetry::EvaluationDone>().back().loss);
  EXPECT_NE(packed.tokens, stream.tokens);
  EXPECT_NE(packed.loss, stream.loss);
}

}  // namespace
}  // namespace tutti::train
