#include "tutti/object/xml.h"

#include <gtest/gtest.h>

#include <functional>

#include "tutti/base/error.h"

namespace tutti::object {
namespace {

constexpr const char* kPage =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
    "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
    "<NextContinuationToken>1/a&amp;b=</NextContinuationToken>"
    "<Contents><Key>run/a%20%26%3C.bin</Key><Size>5368709120</Size></Contents>"
    "<Contents><Key>run/empty</Key><Size>0</Size></Contents>"
    "<CommonPrefixes><Prefix>run/step-00000001/</Prefix></CommonPrefixes></ListBucketResult>";

std::string corrupt(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::corrupt);
    return error.what();
  }
  return {};
}

TEST(Xml, APageOfAList) {
  const ListPage page = parse_list(kPage, "list");
  ASSERT_EQ(page.objects.size(), 2U);
  EXPECT_EQ(page.objects[0].key, "run/a &<.bin");
  EXPECT_EQ(page.objects[0].size_bytes, int64_t{5} << 30);
  EXPECT_EQ(page.objects[1].size_bytes, 0);
  ASSERT_EQ(page.prefixes.size(), 1U);
  EXPECT_EQ(page.prefixes[0], "run/step-00000001/");
  EXPECT_EQ(page.next, "1/a&b=");
}

// MinIO and AWS write the space of a key as forms do.
TEST(Xml, SpacesOfKeys) {
  const ListPage page = parse_list(
      "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>my+run/1%2B1+%25</Key>"
      "<Size>1</Size></Contents><CommonPrefixes><Prefix>my+run/</Prefix></CommonPrefixes>"
      "</ListBucketResult>",
      "list");
  ASSERT_EQ(page.objects.size(), 1U);
  EXPECT_EQ(page.objects[0].key, "my run/1+1 %");
  EXPECT_EQ(page.prefixes, std::vector<std::string>{"my run/"});
  const ListPage plain = parse_list(
      "<ListBucketResult><Contents><Key>1+1</Key><Size>1</Size></Contents></ListBucketResult>",
      "list");
  EXPECT_EQ(plain.objects[0].key, "1+1");
  const UploadPage uploads = parse_uploads(
      "<ListMultipartUploadsResult><EncodingType>url</EncodingType><Upload><Key>a+b</Key>"
      "<UploadId>x</UploadId></Upload></ListMultipartUploadsResult>",
      "uploads");
  EXPECT_EQ(uploads.uploads[0].key, "a b");
}

TEST(Xml, UploadsAndTheirEnds) {
  const UploadPage page = parse_uploads(
      "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"
      "<NextUploadIdMarker>i</NextUploadIdMarker><Upload><Key>a%b</Key><UploadId>x</UploadId>"
      "</Upload></ListMultipartUploadsResult>",
      "uploads");
  ASSERT_EQ(page.uploads.size(), 1U);
  EXPECT_EQ(page.uploads[0].key, "a%b");  // not encoded: the answer does not say so
  EXPECT_EQ(page.next_key, "k");
  EXPECT_EQ(page.next_id, "i");
  EXPECT_EQ(parse_upload_id("<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                            "</InitiateMultipartUploadResult>",
                            "begin"),
            "u");
  StoreError error;
  EXPECT_EQ(parse_completed("<CompleteMultipartUploadResult><ETag>\"e-2\"</ETag>"
                            "</CompleteMultipartUploadResult>",
                            "complete", error),
            "\"e-2\"");
  parse_completed("<Error><Code>InternalError</Code></Error>", "complete", error);
  EXPECT_EQ(error.code, "InternalError");
}

TEST(Xml, WhatIsNotAnAnswerIsCorruptAndNamesTheRequest) {
  const std::string page = kPage;
  // Cut anywhere, it is an error or, where only white space is lost, the page.
  for (size_t size = 0; size < page.size(); ++size) {
    EXPECT_NE(corrupt([&] {
                parse_list(page.substr(0, size), "list s3://b/run");
              }).find("list s3://b/run"),
              std::string::npos)
        << size;
  }
  for (const char* text :
       {"<html><body>Bad Gateway</body></html>", "{\"keys\": []}",
        "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>1x</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>"
        "</ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"}) {
    EXPECT_NE(corrupt([&] { parse_list(text, "list"); }), "") << text;
  }
  EXPECT_EQ(parse_error("<html>no</html>").code, "");
  EXPECT_EQ(parse_error("").code, "");
}

// Entities that a document defines itself are not expanded, however large they would be.
TEST(Xml, DefinedEntitiesAreNotExpanded) {
  const StoreError error = parse_error(
      "<!DOCTYPE Error [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">"
      "<!ENTITY f SYSTEM \"file:///etc/passwd\">]>"
      "<Error><Code>&b;&f;</Code></Error>");
  EXPECT_LE(error.code.size(), 6U);
  EXPECT_EQ(error.code.find("root"), std::string::npos);
}

TEST(Xml, CompletionNamesPartsAndEscapes) {
  EXPECT_EQ(completion_xml({{1, "\"a\"", "s="}, {2, "b<", ""}}),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
            "<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag>"
            "<ChecksumSHA256>s=</ChecksumSHA256></Part>"
            "<Part><PartNumber>2</PartNumber><ETag>b&lt;</ETag></Part>"
            "</CompleteMultipartUpload>");
}

}  // namespace
}  // namespace tutti::object
