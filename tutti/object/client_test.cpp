#include "tutti/object/client.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/object/digest.h"
#include "tutti/object/testing/fake_store.h"

namespace tutti::object {
namespace {

const Uri kObject = {"bucket", "run/a &+%.bin"};
const Condition kIfAbsent = {true, ""};

class ClientTest : public testing::Test {
 protected:
  Client client(int attempts = 4) { return {fake_settings(), store_, without_waiting(attempts)}; }
  Error error_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(FakeStore::kSecretKey), std::string::npos);
      return error;
    }
    ADD_FAILURE() << "no error";
    return {ErrorKind::usage, ""};
  }
  void answer(int status, const std::string& code) {
    Response response;
    response.status = status;
    response.headers["date"] = "Thu, 01 Jan 2026 00:00:00 GMT";
    response.body = "<Error><Code>" + code + "</Code><Message>text</Message></Error>";
    store_->answer_with(response);
  }

  std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
};

TEST_F(ClientTest, WritesReadsListsAndRemoves) {
  const Client c = client();
  EXPECT_FALSE(c.head(kObject));
  c.put(kObject, "content");
  EXPECT_EQ(c.get(kObject), "content");
  EXPECT_EQ(c.head(kObject)->size_bytes, 7);
  char part[3];
  c.get_range(kObject, 2, 3, c.head(kObject)->etag, part);
  EXPECT_EQ(std::string(part, 3), "nte");
  EXPECT_EQ(c.list("bucket", "run/", true).objects.at(0).key, kObject.key);
  c.remove(kObject);
  c.remove(kObject);  // no error when absent
  EXPECT_FALSE(c.head(kObject));
}

TEST_F(ClientTest, ListsPageByPage) {
  store_->set_page(3);
  for (int i = 0; i < 10; ++i) store_->set_object("bucket/a/" + std::to_string(i), "x");
  for (int i = 0; i < 4; ++i) store_->set_object("bucket/a/f" + std::to_string(i) + "/x", "xy");
  const Client c = client();
  EXPECT_EQ(c.list("bucket", "a/", false).objects.size(), 14U);
  const ListPage page = c.list("bucket", "a/", true);
  EXPECT_EQ(page.objects.size(), 10U);
  EXPECT_EQ(page.prefixes.size(), 4U);
  EXPECT_EQ(c.list("bucket", "b/", true).objects.size(), 0U);
}

TEST_F(ClientTest, ConditionsHold) {
  const Client c = client();
  c.put(kObject, "first", kIfAbsent);
  EXPECT_EQ(error_of([&] { c.put(kObject, "second", kIfAbsent); }).kind(), ErrorKind::peer);
  EXPECT_EQ(c.get(kObject), "first");
  const std::string etag = c.head(kObject)->etag;
  c.put(kObject, "third", {false, etag});
  EXPECT_EQ(error_of([&] { c.put(kObject, "fourth", {false, etag}); }).kind(), ErrorKind::peer);
  EXPECT_EQ(c.get(kObject), "third");
}

// What took effect although its answer was lost counts, and is not another's.
TEST_F(ClientTest, AConditionalWriteWhoseAnswerIsLostHasSucceeded) {
  const Client c = client();
  store_->fail_request(0, Failure::answer_lost, false);
  c.put(kObject, "mine", kIfAbsent);
  EXPECT_EQ(c.get(kObject), "mine");
  // Not where another's bytes are there.
  store_->fail_request(0, Failure::refused, false);
  EXPECT_EQ(error_of([&] { c.put(kObject, "other", kIfAbsent); }).kind(), ErrorKind::peer);
}

TEST_F(ClientTest, WhetherAWriteThatFailedMayHaveTakenEffect) {
  bool may_be_there = false;
  const auto put = [&](int attempts) {
    return error_of([&] { client(attempts).put(kObject, "x", kIfAbsent, &may_be_there); }).kind();
  };
  for (const auto& [status, code] : std::vector<std::pair<int, std::string>>{
           {403, "AccessDenied"}, {403, "QuotaExceeded"}, {501, "NotImplemented"}, {507, ""}}) {
    answer(status, code);
    put(3);
    EXPECT_FALSE(may_be_there) << status;
  }
  answer(500, "InternalError");
  EXPECT_EQ(put(3), ErrorKind::io);
  EXPECT_TRUE(may_be_there);
  store_->answer_with(std::nullopt);
  store_->fail_request(0, Failure::answer_lost, true);
  EXPECT_EQ(put(1), ErrorKind::io);
  EXPECT_TRUE(may_be_there);
  store_->clear_faults();
  // The refusal of a second attempt says nothing about the first, unless another one's bytes are
  // there.
  store_->set_object("bucket/" + kObject.key, "another");
  store_->fail_request(0, Failure::unavailable, false);
  EXPECT_EQ(put(2), ErrorKind::peer);
  EXPECT_FALSE(may_be_there);
  store_->set_capacity(0);
  store_->fail_request(0, Failure::refused, false);
  EXPECT_EQ(put(2), ErrorKind::no_space);
  EXPECT_TRUE(may_be_there);
}

TEST_F(ClientTest, AMultipartUploadAppearsWhenItIsCompleted) {
  const Client c = client();
  const std::string id = c.begin_upload(kObject);
  std::vector<UploadPart> parts;
  parts.push_back(c.upload_part(kObject, id, 1, "abc"));
  parts.push_back(c.upload_part(kObject, id, 2, "de"));
  EXPECT_FALSE(c.head(kObject));
  EXPECT_EQ(c.list_uploads("bucket", "run/").size(), 1U);
  EXPECT_EQ(c.list_uploads("bucket", "other/").size(), 0U);
  store_->fail_request(0, Failure::answer_lost, false);  // of the completion
  c.complete_upload(kObject, id, parts, 5);
  EXPECT_EQ(c.get(kObject), "abcde");
  EXPECT_EQ(store_->open_uploads(), 0);
  // One that is never completed.
  const std::string other = c.begin_upload(kObject);
  c.abort_upload(kObject, other);
  c.abort_upload(kObject, other);
  EXPECT_EQ(store_->open_uploads(), 0);
  EXPECT_EQ(error_of([&] { c.upload_part(kObject, other, 1, "x"); }).kind(), ErrorKind::not_found);
}

TEST_F(ClientTest, FailuresThatPassAreTriedAgain) {
  const Client c = client(3);
  c.put(kObject, "x");
  for (const Failure failure : {Failure::refused, Failure::answer_lost, Failure::unavailable}) {
    store_->fail_request(0, failure, false);
    EXPECT_EQ(c.get(kObject), "x");
    EXPECT_EQ(store_->requests(), 2);
    store_->fail_request(0, failure, true);
    const Error error = error_of([&] { c.get(kObject); });
    EXPECT_EQ(error.kind(), ErrorKind::io);
    EXPECT_NE(std::string(error.what()).find("3 attempts"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("s3://bucket/run/a"), std::string::npos);
    EXPECT_EQ(store_->requests(), 3);
  }
}

TEST_F(ClientTest, WaitsDoubleWithinTheirBoundAndAreDrawn) {
  std::vector<double> waits;
  RetryOptions retry;
  retry.attempts = 8;
  retry.first_seconds = 0.5;
  retry.most_seconds = 4;
  retry.sleep = [&](double seconds) { waits.push_back(seconds); };
  retry.uniform = [] { return 0.5; };
  store_->fail_request(0, Failure::unavailable, true);
  const Client c(fake_settings(), store_, retry);
  error_of([&] { c.get(kObject); });
  EXPECT_EQ(waits, (std::vector<double>{0.25, 0.5, 1, 2, 2, 2, 2}));
  // Without a given source: between 0 and the bound, and not always the same.
  RetryOptions drawing;
  drawing.first_seconds = 1;
  std::set<double> drawn;
  for (int i = 0; i < 20; ++i) {
    const double seconds = backoff_seconds(drawing, 3);
    EXPECT_GE(seconds, 0);
    EXPECT_LE(seconds, 4);
    drawn.insert(seconds);
  }
  EXPECT_GT(drawn.size(), 10U);
}

TEST_F(ClientTest, WhichAnswersPass) {
  for (const int status : {429, 500, 502, 503, 504}) EXPECT_TRUE(is_passing(status, "")) << status;
  for (const int status : {400, 403, 404, 409, 412, 501, 507}) {
    EXPECT_FALSE(is_passing(status, "Other")) << status;
  }
  EXPECT_TRUE(is_passing(400, "RequestTimeout"));
  EXPECT_TRUE(is_passing(409, "ConditionalRequestConflict"));
}

TEST_F(ClientTest, ErrorsSayWhatIsWrongAndWhatHelps) {
  const Client c = client();
  const auto says = [&](ErrorKind kind, const std::string& part, const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  };
  says(ErrorKind::not_found, "there is no bucket 'nowhere' at http://store.test; create it",
       error_of([&] {
         c.put({"nowhere", "key"}, "x");
       }));
  says(ErrorKind::not_found, "it does not exist", error_of([&] { c.get(kObject); }));
  store_->set_capacity(3);
  says(ErrorKind::no_space, "is full", error_of([&] { c.put(kObject, "four"); }));
  answer(507, "");
  says(ErrorKind::no_space, "507", error_of([&] { c.put(kObject, "x"); }));
  answer(403, "RequestTimeTooSkewed");
  const Error skew = error_of([&] { c.get(kObject); });
  says(ErrorKind::usage, "at http://store.test it is Thu, 01 Jan 2026 00:00:00 GMT", skew);
  says(ErrorKind::usage, "here it is 20", skew);
  answer(403, "AccessDenied");
  says(ErrorKind::permission, "AccessDenied", error_of([&] { c.get(kObject); }));
  answer(501, "NotImplemented");
  says(ErrorKind::unsupported, "does not implement", error_of([&] { c.get(kObject); }));
  store_->answer_with(std::nullopt);
  Settings wrong = fake_settings();
  wrong.credentials.secret_key = "another secret";
  const Client stranger(wrong, store_, without_waiting(1));
  const Error refused = error_of([&] { stranger.get(kObject); });
  says(ErrorKind::permission, "does not accept the credentials (SignatureDoesNotMatch)", refused);
  says(ErrorKind::permission, "does not accept the credentials (SignatureDoesNotMatch)",
       error_of([&] { stranger.head(kObject); }));  // whose answer has no body
  EXPECT_EQ(std::string(refused.what()).find("another secret"), std::string::npos);
}

TEST_F(ClientTest, BytesThatDoNotHaveTheirChecksumAreCorrupt) {
  Response response;
  response.status = 200;
  response.body = "damaged";
  response.headers["x-amz-checksum-sha256"] = to_base64(sha256("content"));
  store_->answer_with(response);
  const Client c = client();
  EXPECT_EQ(error_of([&] { c.get(kObject); }).kind(), ErrorKind::corrupt);
  response.headers["x-amz-checksum-sha256"] = "abc-2";  // of parts: not of these bytes
  store_->answer_with(response);
  EXPECT_EQ(c.get(kObject), "damaged");
}

TEST_F(ClientTest, AnObjectThatIsReplacedWhileItIsReadIsAnError) {
  const Client c = client();
  c.put(kObject, "old one");
  const std::string etag = c.head(kObject)->etag;
  c.put(kObject, "new one");
  char part[2];
  EXPECT_EQ(error_of([&] { c.get_range(kObject, 0, 2, etag, part); }).kind(), ErrorKind::corrupt);
}

// A range answered by fewer bytes, or by the whole, is not taken for the range.
TEST_F(ClientTest, ARangeIsComplete) {
  Response response;
  response.status = 206;
  response.body = "ab";
  store_->answer_with(response);
  const Client c = client();
  char part[4];
  EXPECT_EQ(error_of([&] { c.get_range(kObject, 0, 4, "", part); }).kind(), ErrorKind::corrupt);
  response.status = 200;
  response.body = "abcd";
  store_->answer_with(response);
  EXPECT_EQ(error_of([&] { c.get_range(kObject, 8, 4, "", part); }).kind(), ErrorKind::corrupt);
}

// A recorder of where requests go.
class Recorder final : public Transport {
 public:
  Response send(const Request& request) override {
    seen.push_back(request);
    Response response;
    response.status = 301;
    if (seen.size() == 1) response.headers["x-amz-bucket-region"] = "eu-west-3";
    if (seen.size() > 1) response.status = 404;
    return response;
  }
  std::vector<Request> seen;
};

TEST_F(ClientTest, ABucketOfAnotherRegionIsFollowedThere) {
  const auto recorder = std::make_shared<Recorder>();
  Settings settings = fake_settings();
  settings.endpoint.clear();
  const Client c(settings, recorder, without_waiting(1));
  EXPECT_FALSE(c.head({"my-bucket", "a/b"}));
  ASSERT_EQ(recorder->seen.size(), 2U);
  EXPECT_EQ(recorder->seen[0].host, "my-bucket.s3.us-east-1.amazonaws.com");
  EXPECT_EQ(recorder->seen[0].path, "/a/b");
  EXPECT_EQ(recorder->seen[1].host, "my-bucket.s3.eu-west-3.amazonaws.com");
  EXPECT_NE(recorder->seen[1].headers.at("authorization").find("/eu-west-3/s3/"),
            std::string::npos);
  // A name with dots would not match the certificate.
  EXPECT_FALSE(c.head({"my.bucket", "a"}));
  EXPECT_EQ(recorder->seen[2].host, "s3.us-east-1.amazonaws.com");
  EXPECT_EQ(recorder->seen[2].path, "/my.bucket/a");
}

}  // namespace
}  // namespace tutti::object
