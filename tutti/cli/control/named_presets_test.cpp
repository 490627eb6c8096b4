#include "tutti/cli/control/named_presets.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::cli {
namespace {

std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    require_named_presets(text, "page.yaml", overrides);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
}

TEST(NamedPresets, FilesAreNone) {
  for (const char* text :
       {"model: /home/ada/secret.yaml", "model: {preset: ../secret.yaml, layers: 2}",
        "{\"model\": \"secret.yaml\"}", "model:\n  'preset': &x /s.yaml\n",
        "distill: {model: {preset: /s.yaml}}", "distill:\n  model: /s.yaml"}) {
    EXPECT_NE(refusal(text).find("is a file"), std::string::npos) << text;
  }
  for (const char* override_text :
       {"model=/s.yaml", "model={preset: /s.yaml}", "model.preset=/s.yaml",
        "distill={model: /s.yaml}", "distill.model.preset=/s.yaml"}) {
    EXPECT_NE(refusal("model: gpt2-124m", {override_text}).find("is a file"), std::string::npos)
        << override_text;
  }
}

TEST(NamedPresets, NamesAndMappingsAre) {
  EXPECT_EQ(refusal("model: gpt2-124m", {"train.steps=5", "model.layers=2"}), "");
  EXPECT_EQ(refusal("model: {layers: 2}\ndistill: {teacher: t}", {"distill.model=gpt2-124m"}), "");
  EXPECT_EQ(refusal("model: /s.yaml", {"model=gpt2-124m"}), "");  // overridden
  EXPECT_EQ(refusal("", {}), "");
}

}  // namespace
}  // namespace tutti::cli
