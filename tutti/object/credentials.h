// Where a store is and who asks: from AWS_* variables and the files of the AWS command line.
//
//   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN    else the profile in the files
//   AWS_PROFILE                                                     default: "default"
//   AWS_REGION, AWS_DEFAULT_REGION                                  else `region` of the profile
//   AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL                           else `endpoint_url`
//   AWS_CA_BUNDLE                                                   else `ca_bundle`
//   AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE                    default: in ~/.aws
//   TUTTI_S3_ADDRESSING                                             else `addressing_style`
//
// Roles that a machine has (instance metadata, web identities, SSO) are not asked for.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tutti/base/file.h"

namespace tutti::object {

struct Credentials {
  std::string access_key;
  std::string secret_key;     // never part of a message
  std::string session_token;  // nor is this
};

// automatic: the bucket in the path with an endpoint of one's own, else in the host's name.
enum class Addressing { automatic, path, host };

struct Settings {
  Credentials credentials;
  std::string region = "us-east-1";
  std::string endpoint;   // "http://127.0.0.1:9000", no user and no query; empty: AWS
  std::string ca_bundle;  // file of trusted certificates; empty: the system's
  Addressing addressing = Addressing::automatic;
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// Throws usage, naming what was looked at and the remedy, when there are no credentials, half of
// them, no such profile, or a value that means nothing.
Settings find_settings(FileSystem& files, const Environment& environment);

}  // namespace tutti::object
