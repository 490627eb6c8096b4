// The published examples of AWS: those of S3's documentation ("Signature Calculations for the
// Authorization Header"), and cases of the Signature Version 4 test suite.
#include "tutti/object/sigv4.h"

#include <gtest/gtest.h>

#include "tutti/object/digest.h"

namespace tutti::object {
namespace {

constexpr const char* kEmptySha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

Request example(const std::string& method, const std::string& path, const Query& query = {}) {
  Request request;
  request.method = method;
  request.host = "examplebucket.s3.amazonaws.com";
  request.path = path;
  request.query = query;
  return request;
}

std::string signature(Request request, const std::string& payload = kEmptySha256) {
  const Signing signing = {{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""},
                           "us-east-1",
                           "s3",
                           "20130524T000000Z",
                           payload};
  sign(request, signing);
  const std::string& header = request.headers.at("authorization");
  return header.substr(header.find("Signature=") + 10);
}

TEST(SigV4, ReadingPartOfAnObject) {
  Request request = example("GET", "/test.txt");
  request.headers["range"] = "bytes=0-9";
  EXPECT_EQ(signature(request), "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(SigV4, WritingAnObjectWhoseNameIsEncoded) {
  Request request = example("PUT", "/test$file.text");
  request.headers["date"] = "Fri, 24 May 2013 00:00:00 GMT";
  request.headers["x-amz-storage-class"] = "REDUCED_REDUNDANCY";
  const std::string payload = to_hex(sha256("Welcome to Amazon S3."));
  EXPECT_EQ(payload, "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072");
  EXPECT_EQ(signature(request, payload),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}

TEST(SigV4, AQueryWithoutAValue) {
  EXPECT_EQ(signature(example("GET", "/", {{"lifecycle", ""}})),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(SigV4, ListingIsTheSameInAnyOrderOfTheQuery) {
  const std::string expected = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
  EXPECT_EQ(signature(example("GET", "/", {{"max-keys", "2"}, {"prefix", "J"}})), expected);
  EXPECT_EQ(signature(example("GET", "/", {{"prefix", "J"}, {"max-keys", "2"}})), expected);
}

// Of the test suite: another service, which does not sign the digest of the payload as a header.
TEST(SigV4, TestSuite) {
  const auto of_suite = [](const Query& query) {
    Request request;
    request.method = "GET";
    request.host = "example.amazonaws.com";
    request.path = "/";
    request.query = query;
    sign(request, {{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""},
                   "us-east-1",
                   "service",
                   "20150830T123600Z",
                   kEmptySha256});
    return request.headers.at("authorization");
  };
  EXPECT_EQ(of_suite({}),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
            "SignedHeaders=host;x-amz-date, "
            "Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  const std::string ordered = of_suite({{"Param2", "value2"}, {"Param1", "value1"}});
  EXPECT_NE(ordered.find("b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
            std::string::npos)
      << ordered;
}

TEST(SigV4, ASessionTokenIsSignedToo) {
  Request request = example("GET", "/test.txt");
  sign(request, {{"AKIDEXAMPLE", "secret", "a token"}, "us-east-1", "s3", "20130524T000000Z", ""});
  EXPECT_EQ(request.headers.at("x-amz-security-token"), "a token");
  EXPECT_NE(signed_header_names(request).find("x-amz-security-token"), std::string::npos);
}

TEST(Digest, KnownAnswers) {
  EXPECT_EQ(to_hex(sha256("")), kEmptySha256);
  EXPECT_EQ(to_hex(md5("")), "d41d8cd98f00b204e9800998ecf8427e");
  // RFC 4231, test case 2.
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  // RFC 4648.
  EXPECT_EQ(to_base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(to_base64("foob"), "Zm9vYg==");
  EXPECT_EQ(to_base64(""), "");
  EXPECT_EQ(from_hex(to_hex("a\xff")), "a\xff");
  EXPECT_EQ(from_hex("0g"), "");
}

}  // namespace
}  // namespace tutti::object
