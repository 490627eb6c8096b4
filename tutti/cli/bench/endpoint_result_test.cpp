#include "tutti/cli/bench/endpoint_result.h"

#include <gtest/gtest.h>

namespace tutti::cli {
namespace {

EndpointResult two_and_a_failure() {
  EndpointResult result;
  result.rate = 1;
  result.seconds = 10;
  result.targets = {0.5, 0.2};
  MeasuredRequest quick;
  quick.planned_seconds = 1;
  quick.first_seconds = 1.4;
  quick.last_seconds = 3.4;
  quick.prompt_tokens = 100;
  quick.cached_tokens = 64;
  quick.answer_tokens = 21;
  MeasuredRequest slow = quick;
  slow.first_seconds = 2;
  slow.last_seconds = 4;
  MeasuredRequest failed;
  failed.status = 429;
  failed.error = "HTTP 429: full";
  result.requests = {quick, slow, failed};
  return result;
}

TEST(EndpointResult, SumsAreThoseOfItsRequests) {
  const Json json = endpoint_result_json(two_and_a_failure());
  EXPECT_EQ(json["succeeded"], 2);
  EXPECT_EQ(json["errors"][0]["requests"], 1);
  EXPECT_DOUBLE_EQ(json["answer_tokens_per_second"].get<double>(), 4.2);
  EXPECT_DOUBLE_EQ(json["first_token_seconds"]["mean"].get<double>(), 0.7);
  EXPECT_DOUBLE_EQ(json["first_token_seconds"]["max"].get<double>(), 1);
  EXPECT_NEAR(json["per_token_seconds"]["p50"].get<double>(), 0.1, 1e-12);
  EXPECT_NEAR(json["latency_seconds"]["p50"].get<double>(), 2.7, 1e-12);
  // The slow one misses the first target, the failure both.
  EXPECT_EQ(json["good_requests"], 1);
  EXPECT_DOUBLE_EQ(json["goodput_per_second"].get<double>(), 0.1);
}

TEST(EndpointResult, TextAndPageNameFailures) {
  const EndpointResult result = two_and_a_failure();
  const std::string text = endpoint_result_text(result);
  EXPECT_NE(text.find("2 of 3 succeeded"), std::string::npos) << text;
  EXPECT_NE(text.find("1 failed: HTTP 429: full"), std::string::npos) << text;
  const std::string page = endpoint_result_page(result, "http://h:1");
  EXPECT_NE(page.find("Time to first token"), std::string::npos);
}

TEST(EndpointResult, NothingSucceededIsAResult) {
  EndpointResult result = two_and_a_failure();
  result.requests = {result.requests.back()};
  EXPECT_TRUE(endpoint_result_json(result)["latency_seconds"].is_null());
  EXPECT_NE(endpoint_result_text(result).find("0 of 1 succeeded"), std::string::npos);
  EXPECT_FALSE(endpoint_result_page(result, "u").empty());
}

}  // namespace
}  // namespace tutti::cli
