#include "tutti/engine/cuda/attention_choice.h"

#include <gtest/gtest.h>

namespace tutti::engine {
namespace {

TEST(AttentionChoiceTest, SupportedShapesGoToTheLibrary) {
  AttentionShape shape = {8, 1024, 12, 12, 64};
  EXPECT_EQ(why_not_fused(shape), "");
  shape.head_dim = 256;
  EXPECT_EQ(why_not_fused(shape), "");
  shape.documents = true;
  EXPECT_EQ(why_not_fused(shape), "");
}

TEST(AttentionChoiceTest, EveryReasonIsStated) {
  const auto reason = [](const auto& change) {
    AttentionShape shape = {8, 1024, 12, 12, 64};
    change(shape);
    return why_not_fused(shape);
  };
  EXPECT_NE(reason([](auto& s) { s.dtype = DType::f32; }).find("f32"), std::string::npos);
  const auto short_documents = [](auto& s) {
    s.documents = true;
    s.sequence = 64;
  };
  EXPECT_NE(reason(short_documents).find("at most 64 tokens"), std::string::npos);
  EXPECT_NE(reason([](auto& s) { s.elements = int64_t{1} << 31; }).find("2147483648 elements"),
            std::string::npos);
  EXPECT_NE(reason([](auto& s) { s.sequence = 1; }).find("token"), std::string::npos);
  EXPECT_NE(reason([](auto& s) { s.head_dim = 20; }).find("head size 20"), std::string::npos);
  EXPECT_NE(reason([](auto& s) { s.head_dim = 264; }).find("head size 264"), std::string::npos);
  EXPECT_NE(reason([](auto& s) { s.aligned = false; }).find("16 bytes"), std::string::npos);
}

TEST(AttentionChoiceTest, NoteStatesShapeAndReason) {
  EXPECT_EQ(plain_attention_note({1, 2048, 32, 8, 128}, "no kernel"),
            "attention B1 T2048 A32 K8 D128 uses the plain kernels, which are slower than cuDNN's: "
            "no kernel");
}

}  // namespace
}  // namespace tutti::engine
