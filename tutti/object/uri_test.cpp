#include "tutti/object/uri.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::object {
namespace {

TEST(Uri, BucketAndKey) {
  const Uri uri = parse_uri("s3://my-bucket/a/b c.bin");
  EXPECT_EQ(uri.bucket, "my-bucket");
  EXPECT_EQ(uri.key, "a/b c.bin");
  EXPECT_EQ(parse_uri("s3://my-bucket").key, "");
  EXPECT_EQ(parse_uri("s3://my-bucket/").key, "");
  EXPECT_EQ(parse_uri("s3://my-bucket//a//b/").key, "a/b");
}

TEST(Uri, WhatIsOne) {
  EXPECT_TRUE(is_uri("s3://bucket"));
  EXPECT_TRUE(is_uri("s3:/"));  // parent_path() of it
  EXPECT_FALSE(is_uri("runs/s3://bucket"));
  EXPECT_FALSE(is_uri("s3"));
}

TEST(Uri, WhatCannotBeABucketIsRefused) {
  for (const char* path : {"s3://", "s3:///key", "s3://ab/key", "s3://Bucket/key", "s3://a_b/key",
                           "s3://host:80/key", "s3:/", "s3://user@host/key", "s3://bucket/../x"}) {
    EXPECT_THROW(parse_uri(path), Error) << path;
  }
}

TEST(PercentEncoding, ThereAndBack) {
  std::string every;
  for (int c = 1; c < 256; ++c) every += static_cast<char>(c);
  EXPECT_EQ(percent_decode(percent_encode(every)), every);
  EXPECT_EQ(percent_encode("a/b ~"), "a%2Fb%20~");
  EXPECT_EQ(percent_encode("a/b ~", false), "a/b%20~");
  EXPECT_EQ(percent_decode("100%"), "100%");
  EXPECT_EQ(percent_decode("%4"), "%4");
  EXPECT_EQ(percent_decode("%zz"), "%zz");
}

}  // namespace
}  // namespace tutti::object
