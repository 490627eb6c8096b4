#include "tutti/object/credentials.h"

#include <gtest/gtest.h>

#include <map>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::object {
namespace {

class CredentialsTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    files_.create_directories(parent_path(path));
    files_.create(path)->append(text.data(), text.size());
  }
  Settings find() {
    return find_settings(files_, [&](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    });
  }
  std::string error() {
    try {
      find();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return {};
  }

  MemoryFileSystem files_;
  std::map<std::string, std::string> variables_ = {{"HOME", "home"}};
};

TEST_F(CredentialsTest, Variables) {
  variables_["AWS_ACCESS_KEY_ID"] = "key";
  variables_["AWS_SECRET_ACCESS_KEY"] = "secret";
  variables_["AWS_SESSION_TOKEN"] = "token";
  variables_["AWS_DEFAULT_REGION"] = "eu-central-1";
  variables_["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9000/";
  variables_["TUTTI_S3_ADDRESSING"] = "virtual";
  const Settings settings = find();
  EXPECT_EQ(settings.credentials.access_key, "key");
  EXPECT_EQ(settings.credentials.secret_key, "secret");
  EXPECT_EQ(settings.credentials.session_token, "token");
  EXPECT_EQ(settings.region, "eu-central-1");
  EXPECT_EQ(settings.endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(settings.addressing, Addressing::host);
  variables_["AWS_REGION"] = "us-west-2";  // the more specific one wins
  variables_["AWS_ENDPOINT_URL_S3"] = "https://store";
  EXPECT_EQ(find().region, "us-west-2");
  EXPECT_EQ(find().endpoint, "https://store");
}

TEST_F(CredentialsTest, FilesAndProfiles) {
  write("home/.aws/credentials",
        "# of people\n[default]\naws_access_key_id = one\naws_secret_access_key=a=b\n\n"
        "[lab]\naws_access_key_id = two\naws_secret_access_key = c\naws_session_token = t\n");
  write("home/.aws/config",
        "[default]\nregion = us-east-2\n[profile lab]\nregion = eu-west-1\n"
        "endpoint_url = https://lab.example\nca_bundle = /etc/lab.pem\n"
        "s3 =\n  addressing_style = path\n  max_queue_size = 10\n");
  EXPECT_EQ(find().credentials.access_key, "one");
  EXPECT_EQ(find().credentials.secret_key, "a=b");
  EXPECT_EQ(find().region, "us-east-2");
  EXPECT_EQ(find().addressing, Addressing::automatic);
  variables_["AWS_PROFILE"] = "lab";
  const Settings lab = find();
  EXPECT_EQ(lab.credentials.access_key, "two");
  EXPECT_EQ(lab.credentials.session_token, "t");
  EXPECT_EQ(lab.region, "eu-west-1");
  EXPECT_EQ(lab.endpoint, "https://lab.example");
  EXPECT_EQ(lab.ca_bundle, "/etc/lab.pem");
  EXPECT_EQ(lab.addressing, Addressing::path);
  // Keys in variables are not mixed with secrets in files.
  variables_["AWS_ACCESS_KEY_ID"] = "three";
  variables_["AWS_SECRET_ACCESS_KEY"] = "d";
  EXPECT_EQ(find().credentials.session_token, "");
  EXPECT_EQ(find().region, "eu-west-1");
}

TEST_F(CredentialsTest, MessagesNameTheRemedyAndNoSecret) {
  EXPECT_NE(error().find("set AWS_ACCESS_KEY_ID"), std::string::npos);
  variables_["AWS_ACCESS_KEY_ID"] = "key";
  EXPECT_NE(error().find("AWS_SECRET_ACCESS_KEY is not"), std::string::npos);
  variables_["AWS_SECRET_ACCESS_KEY"] = "s3cr3t";
  variables_["AWS_ENDPOINT_URL"] = "127.0.0.1:9000";
  EXPECT_NE(error().find("expected a URL"), std::string::npos);
  for (const char* endpoint :
       {"https://me:s3cr3t@store.example", "me:s3cr3t@store.example", "https://store/?s3cr3t=1"}) {
    variables_["AWS_ENDPOINT_URL"] = endpoint;
    EXPECT_NE(error().find("AWS_ENDPOINT_URL"), std::string::npos) << endpoint;
    EXPECT_EQ(error().find("s3cr3t"), std::string::npos) << error();
  }
  variables_.erase("AWS_ENDPOINT_URL");
  variables_["AWS_PROFILE"] = "nowhere";
  EXPECT_NE(error().find("no profile 'nowhere'"), std::string::npos);
  variables_.erase("AWS_PROFILE");
  variables_["TUTTI_S3_ADDRESSING"] = "dns";
  EXPECT_NE(error().find("'dns'"), std::string::npos);
  variables_.erase("TUTTI_S3_ADDRESSING");
  write("home/.aws/credentials", "[default]\ns3cr3t-without-a-key\n");
  EXPECT_NE(error().find("line 2"), std::string::npos);
  EXPECT_EQ(error().find("s3cr3t"), std::string::npos);
}

}  // namespace
}  // namespace tutti::object
