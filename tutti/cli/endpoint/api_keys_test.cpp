#include "tutti/cli/endpoint/api_keys.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::cli {
namespace {

TEST(ApiKeys, OnlyWhatWasMadeIsAccepted) {
  MemoryFileSystem files;
  const std::string first = add_api_key(files, "keys", "ann");
  const std::string second = add_api_key(files, "keys", "bob");
  EXPECT_NE(first, second);
  const std::string text = read_file(files, "keys");
  EXPECT_EQ(text.find(first.substr(first.rfind('-') + 1)), std::string::npos) << "secrets stay out";
  const ApiKeys keys = ApiKeys::read(files, "keys");
  EXPECT_EQ(keys.size(), 2U);
  EXPECT_TRUE(keys.accepts(first) && keys.accepts(second));
  std::string other = first;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(keys.accepts(other));
  // The id of one with the secret of the other.
  EXPECT_FALSE(keys.accepts(first.substr(0, first.rfind('-')) + second.substr(second.rfind('-'))));
  for (const char* key : {"", "tutti", "tutti--", "x-y-z", "tutti-000000000000-"}) {
    EXPECT_FALSE(keys.accepts(key)) << key;
  }
}

TEST(ApiKeys, DamagedFilesAreNamed) {
  MemoryFileSystem files;
  write_file_atomic(files, "keys", "# only this\n");
  EXPECT_THROW(ApiKeys::read(files, "keys"), Error);
  write_file_atomic(files, "keys", "ann secret\n");
  try {
    ApiKeys::read(files, "keys");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("keys:1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(add_api_key(files, "keys", "two words"), Error);
}

}  // namespace
}  // namespace tutti::cli
