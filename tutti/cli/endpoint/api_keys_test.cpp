#include "tutti/cli/endpoint/api_keys.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/cli/endpoint/live_keys.h"

namespace tutti::cli {
namespace {

endpoint::KeyLimits named(const std::string& name) {
  endpoint::KeyLimits limits;
  limits.name = name;
  return limits;
}

TEST(ApiKeys, OnlyWhatWasMadeIsAccepted) {
  MemoryFileSystem files;
  const std::string first = add_api_key(files, "keys", named("ann"));
  const std::string second = add_api_key(files, "keys", named("bob"));
  EXPECT_NE(first, second);
  const std::string text = read_file(files, "keys");
  EXPECT_EQ(text.find(first.substr(first.rfind('-') + 1)), std::string::npos) << "secrets stay out";
  ApiKeys keys = ApiKeys::read(files, "keys");
  EXPECT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys.identify(first), id_of_api_key(first));
  EXPECT_EQ(keys.identify(second), id_of_api_key(second));
  std::string other = first;
  other.back() = other.back() == '0' ? '1' : '0';
  EXPECT_FALSE(keys.identify(other));
  // The id of one with the secret of the other.
  EXPECT_FALSE(keys.identify(first.substr(0, first.rfind('-')) + second.substr(second.rfind('-'))));
  for (const char* key : {"", "tutti", "tutti--", "x-y-z", "tutti-000000000000-"}) {
    EXPECT_FALSE(keys.identify(key)) << key;
  }
  remove_api_key(files, "keys", id_of_api_key(first));
  keys = ApiKeys::read(files, "keys");
  EXPECT_FALSE(keys.identify(first));
  EXPECT_TRUE(keys.identify(second));
  EXPECT_THROW(remove_api_key(files, "keys", id_of_api_key(first)), Error);
  EXPECT_THROW(remove_api_key(files, "keys", ""), Error);
}

TEST(ApiKeys, LimitsAreKeptWithThem) {
  MemoryFileSystem files;
  const endpoint::KeyLimits limits = parse_key_limits("ann", {"1M", "2.5", "60", "10k"});
  EXPECT_EQ(limits, (endpoint::KeyLimits{"ann", 1'000'000, 2'500'000, 60, 10'000}));
  const std::string key = add_api_key(files, "keys", limits);
  add_api_key(files, "keys", named("bob"));
  const auto all = ApiKeys::read(files, "keys").limits();
  EXPECT_EQ(all.at(id_of_api_key(key)), limits);
  EXPECT_EQ(all.size(), 2U);
  EXPECT_EQ(key_limits_text(named("bob")), "none");
  EXPECT_EQ(key_limits_text(limits),
            "1000000 tokens, 2.500000 USD, 60 requests per minute, 10000 tokens per minute");
  EXPECT_THROW(parse_key_limits("ann", {"", "", "0", ""}), Error);
  EXPECT_THROW(parse_key_limits("ann", {"many", "", "", ""}), Error);
  EXPECT_EQ(parse_token_prices({"0.5", "1.5"}).prompt, 500'000);
  EXPECT_EQ(parse_token_prices({"0.5", "1.5"}).answer, 1'500'000);
  EXPECT_THROW(parse_token_prices({"10001", ""}), Error);
}

TEST(ApiKeys, DamagedFilesAreNamed) {
  MemoryFileSystem files;
  write_file_atomic(files, "keys", "# only this\n");
  EXPECT_EQ(ApiKeys::read(files, "keys").size(), 0U);
  EXPECT_THROW(ApiKeys::read(files, "absent"), Error);
  const auto refused = [&](const std::string& text, const std::string& word) {
    write_file_atomic(files, "keys", text);
    try {
      ApiKeys::read(files, "keys");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find("keys:1"), std::string::npos) << what;
      EXPECT_NE(what.find(word), std::string::npos) << what;
    }
  };
  refused("ann secret\n", "NAME ID SALT HASH");
  const std::string line = "ann 0123456789ab " + std::string(32, '0') + " " + std::string(64, '0');
  refused(line + " color=red\n", "color=red");
  refused(line + " tokens=many\n", "tokens");
  for (const std::string name : {"two words", "a\xff", "a\x7f", "a#b", ""}) {
    EXPECT_THROW(add_api_key(files, "new", named(name)), Error) << name;
  }
  EXPECT_THROW(add_api_key(files, "new", named(std::string(200, 'a'))), Error);
  EXPECT_FALSE(files.exists("new"));
}

TEST(LiveKeys, FollowTheFileAndRememberUse) {
  MemoryFileSystem files;
  const std::string ann = add_api_key(files, "keys", parse_key_limits("ann", {"10", "", "", ""}));
  const std::string id = id_of_api_key(ann);
  EXPECT_THROW(LiveKeys(files, {"keys", "", {}}), Error);  // a restart would forget
  const KeySettings settings{"keys", "use", {1'000'000, 1'000'000}};
  {
    LiveKeys keys(files, settings);
    EXPECT_EQ(keys.identify(ann), id);
    keys.meter().admit(id, {"cmpl-1", "chat", 4, 5})->settle({4, 0, 5});
    const std::string bob = add_api_key(files, "keys", named("bob"));
    EXPECT_FALSE(keys.identify(bob));
    keys.tend();
    EXPECT_TRUE(keys.identify(bob));
    // A damaged file changes nothing.
    write_file_atomic(files, "keys", "ann\n");
    keys.tend();
    EXPECT_TRUE(keys.identify(bob) && keys.identify(ann));
    // Beside a line that cannot be kept a key is still withdrawn.
    write_file_atomic(files, "keys", "");
    keys.tend();
    add_api_key(files, "keys", named("cyd"));
    const std::string dan = add_api_key(files, "keys", named("dan"));
    keys.tend();
    EXPECT_TRUE(keys.identify(dan));
    write_file_atomic(files, "keys", read_file(files, "keys") + "damaged\n");
    remove_api_key(files, "keys", id_of_api_key(dan));
    keys.tend();
    EXPECT_FALSE(keys.identify(dan));
    EXPECT_EQ(keys.size(), 1U);
    write_file_atomic(files, "keys", "");
    keys.tend();
    EXPECT_FALSE(keys.identify(bob) || keys.identify(ann));
  }
  LiveKeys keys(files, settings);
  EXPECT_EQ(keys.size(), 0U);
  EXPECT_EQ(keys.meter().use_of(id).tokens(), 9);
  EXPECT_EQ(keys.meter().use_of(id).pico_usd, 9'000'000);
}

TEST(LiveKeys, MoneyNeedsPrices) {
  MemoryFileSystem files;
  add_api_key(files, "keys", parse_key_limits("ann", {"", "1", "", ""}));
  EXPECT_THROW(LiveKeys(files, {"keys", "use", {}}), Error);
  LiveKeys keys(files, {"keys", "use", {1, 0}});
  EXPECT_EQ(keys.size(), 1U);
}

}  // namespace
}  // namespace tutti::cli
