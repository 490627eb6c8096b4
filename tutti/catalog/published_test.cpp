#include "tutti/catalog/published.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti_test_paths.h"

namespace tutti::catalog {
namespace {

std::string error_of(const std::string& csv) {
  try {
    parse_published(csv, "p.csv");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

constexpr const char* kHeader =
    "benchmark,accelerator,num_accelerators,minutes,"
    "samples_to_target,source\n";

TEST(Published, CatalogLoads) {
  const auto results =
      load_published(posix_file_system(), {"nowhere", TUTTI_SOURCE_DIR "/catalog/published"});
  EXPECT_EQ(results.size(), 277U);
  for (const PublishedResult& result : results) {
    EXPECT_LE(result.raw_minutes, result.minutes) << result.source;
    EXPECT_GT(result.global_batch_samples, 0) << result.source;
  }
}

TEST(Published, ReadsWhatItWrites) {
  PublishedResult result{"v5.1", "llama31_8b", "A, \"B\"", "box", "H100",  8,
                         32,     "",           10.5,       10.25, 176'000, "logs/x"};
  EXPECT_FALSE(parse_published(format_published({result}), "p.csv").at(0).compliant);
  result.compliant = true;
  const auto again = parse_published("# note\n" + format_published({result}), "p.csv");
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again[0].compliant);
  EXPECT_EQ(again[0].submitter, "A, \"B\"");
  EXPECT_EQ(again[0].minutes, 10.5);
  EXPECT_EQ(again[0].raw_minutes, 10.25);
  EXPECT_EQ(again[0].global_batch_samples, 32);
}

TEST(Published, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of(kHeader), "");
  EXPECT_EQ(error_of(std::string(kHeader) + "gpt3,H100,8,1,2\n"),
            "p.csv:2: 5 fields, the header has 6");
  EXPECT_EQ(error_of(std::string(kHeader) + "gpt3,H100,8,fast,2,s\n"),
            "p.csv:2: minutes is 'fast'; write a number above 0");
  EXPECT_EQ(error_of("compliant," + std::string(kHeader) + "sure,gpt3,H100,8,1,2,s\n"),
            "p.csv:2: compliant is 'sure'; write yes or no");
  EXPECT_EQ(error_of(std::string(kHeader) + "gpt3,,8,1,2,s\n"), "p.csv:2: accelerator is missing");
}

}  // namespace
}  // namespace tutti::catalog
