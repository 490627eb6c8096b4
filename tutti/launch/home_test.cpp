#include "tutti/launch/home.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tutti/base/error.h"
#include "tutti_test_paths.h"

namespace tutti::launch {
namespace {

// A home of our own with two recipes, found through TUTTI_HOME.
class Home : public testing::Test {
 protected:
  void SetUp() override {
    home_ = (std::filesystem::path(testing::TempDir()) /
             ("tutti_home_test_" + std::to_string(::getpid())))
                .string();
    files_.remove_tree(home_);
    files_.create_directories(join_path(home_, "recipes/models"));
    for (const char* name : {"recipes/alpha.yaml", "recipes/beta.yaml", "recipes/notes.txt"}) {
      write_file_atomic(files_, join_path(home_, name), "x");
    }
    ::setenv("TUTTI_HOME", home_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TUTTI_HOME");
    files_.remove_tree(home_);
  }

  std::string missing(const std::string& recipe) {
    try {
      find_recipe(files_, recipe);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::not_found);
      return error.what();
    }
    ADD_FAILURE() << recipe << " was found";
    return {};
  }

  FileSystem& files_ = posix_file_system();
  std::string home_;
};

TEST_F(Home, EnvironmentComesFirst) {
  const auto homes = home_folders(files_);
  ASSERT_FALSE(homes.empty());
  EXPECT_EQ(homes.front(), home_);
  EXPECT_EQ(models_folder(files_), join_path(home_, "recipes/models"));
}

TEST_F(Home, SourceTreeIsFoundFromTheProgram) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (program.rfind(TUTTI_SOURCE_DIR, 0) != 0) GTEST_SKIP() << "built outside the source tree";
  ::unsetenv("TUTTI_HOME");
  const auto homes = home_folders(files_);
  EXPECT_TRUE(std::any_of(homes.begin(), homes.end(), [&](const std::string& home) {
    return files_.exists(join_path(home, "recipes/models/gpt2-124m.yaml"));
  }));
}

TEST_F(Home, RecipesAreFoundByNameAndByPath) {
  EXPECT_EQ(find_recipe(files_, "alpha"), join_path(home_, "recipes/alpha.yaml"));
  const std::string path = join_path(home_, "recipes/notes.txt");
  EXPECT_EQ(find_recipe(files_, path), path);
}

TEST_F(Home, UnknownNamesListTheKnownOnes) {
  const std::string message = missing("alpa");
  EXPECT_NE(message.find("no recipe 'alpa'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'alpha'?"), std::string::npos) << message;
  EXPECT_NE(message.find("beta"), std::string::npos) << message;
  EXPECT_EQ(message.find("notes"), std::string::npos) << message;
}

TEST_F(Home, AFolderThatIsNoRunSaysSo) {
  EXPECT_NE(missing(home_).find("folder without recipe.yaml"), std::string::npos);
}

TEST_F(Home, AMissingFileIsNotSearchedByName) { missing("./alpha.yaml"); }

}  // namespace
}  // namespace tutti::launch
