#include "tutti/cli/data/label.h"

#include <gtest/gtest.h>

#include <memory>

#include "tutti/base/testing/memory_file.h"
#include "tutti/object/testing/fake_store.h"

namespace tutti::cli {
namespace {

TEST(Label, CorporaInAnObjectStoreStateTheirClass) {
  MemoryFileSystem local;
  const auto files = object::files_over(std::make_shared<object::FakeStore>(), local, 2);
  const auto write = [&](const std::string& path, const std::string& text) {
    const auto file = files->create(path);
    file->append(text.data(), text.size());
    file->close();
  };
  write("s3://bucket/letters.meta.json", R"({"data_class": "restricted"})");
  write("s3://bucket/news.meta.json", R"({"data_class": "public"})");
  spec::Recipe recipe;
  recipe.data.train = spec::CorpusBlend("s3://bucket/letters");
  // Relative paths start in the folder of the job; these are none.
  for (const char* folder : {"", "/jobs"}) {
    const control::DataLabel label = find_label(*files, recipe, "", folder);
    EXPECT_EQ(label.data_class, "restricted") << folder;
    EXPECT_EQ(label.unlabelled, "") << folder;
  }
  recipe.data.train = spec::CorpusBlend("s3://bucket/news");
  EXPECT_EQ(find_label(*files, recipe, "", "/jobs").unlabelled, "");
  recipe.data.train = spec::CorpusBlend("s3://bucket/nowhere");
  EXPECT_NE(find_label(*files, recipe, "", "/jobs").unlabelled, "");
}

}  // namespace
}  // namespace tutti::cli
