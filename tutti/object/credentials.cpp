#include "tutti/object/credentials.h"

#include <cstdlib>
#include <map>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::object {
namespace {

using Section = std::map<std::string, std::string>;

// The INI files of AWS's tools: [section], key = value, comments with # or ;. An indented line
// below a key without a value belongs to it: `addressing_style` below `s3 =` is
// "s3.addressing_style".
std::map<std::string, Section> read_ini(FileSystem& files, const std::string& path) {
  std::map<std::string, Section> sections;
  if (path.empty() || !files.exists(path)) return sections;
  const std::string text = read_file(files, path);
  Section* section = nullptr;
  std::string parent;
  int64_t number = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    const std::string_view line = trim(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      if (line.back() != ']') {
        fail(ErrorKind::usage, "{}, line {}: a section is written [NAME]", path, number);
      }
      std::string_view name = trim(line.substr(1, line.size() - 2));
      if (starts_with(name, "profile ")) name = trim(name.substr(8));
      section = &sections[std::string(name)];
      parent.clear();
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || section == nullptr) {
      // What the line says may be a secret: it is not repeated.
      fail(ErrorKind::usage, "{}, line {}: expected KEY = VALUE below a [section]", path, number);
    }
    const std::string key(trim(line.substr(0, equals)));
    const std::string value(trim(line.substr(equals + 1)));
    const bool indented = raw.front() == ' ' || raw.front() == '\t';
    if (!indented) parent = value.empty() ? key : "";
    const bool below = indented && !parent.empty();
    (*section)[below ? parent + "." + key : key] = value;
  }
  return sections;
}

Addressing parse_addressing(const std::string& text) {
  if (text.empty() || text == "auto") return Addressing::automatic;
  if (text == "path") return Addressing::path;
  if (text == "virtual") return Addressing::host;
  fail(ErrorKind::usage,
       "TUTTI_S3_ADDRESSING (addressing_style): '{}'; expected auto, path or virtual", text);
}

std::string normal_endpoint(std::string endpoint) {
  // Messages name the endpoint: nothing that may be a secret is part of it.
  if (endpoint.find_first_of("@?#") != std::string::npos) {
    fail(ErrorKind::usage,
         "AWS_ENDPOINT_URL (endpoint_url) holds a user, a password or a query; expected a URL "
         "without them, such as http://127.0.0.1:9000, and keys in AWS_ACCESS_KEY_ID and "
         "AWS_SECRET_ACCESS_KEY");
  }
  while (!endpoint.empty() && endpoint.back() == '/') endpoint.pop_back();
  if (endpoint.empty() || starts_with(endpoint, "http://") || starts_with(endpoint, "https://")) {
    return endpoint;
  }
  fail(ErrorKind::usage,
       "AWS_ENDPOINT_URL (endpoint_url): '{}'; expected a URL such as http://127.0.0.1:9000",
       endpoint);
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
}

Settings find_settings(FileSystem& files, const Environment& environment) {
  const std::string home = environment("HOME").value_or("");
  const auto file = [&](const char* variable, const char* name) {
    const std::string inside = home.empty() ? "" : join_path(join_path(home, ".aws"), name);
    return environment(variable).value_or(inside);
  };
  const std::string credentials_file = file("AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const std::string config_file = file("AWS_CONFIG_FILE", "config");
  const auto secrets = read_ini(files, credentials_file);
  const auto config = read_ini(files, config_file);
  const std::optional<std::string> chosen = environment("AWS_PROFILE");
  const std::string profile = chosen.value_or("default");
  if (chosen && secrets.count(profile) == 0 && config.count(profile) == 0) {
    fail(ErrorKind::usage, "AWS_PROFILE: no profile '{}' in '{}' or '{}'", profile,
         credentials_file, config_file);
  }
  // The first of the variables that is set, else the key of the profile.
  const auto find = [&](std::initializer_list<const char*> variables, const std::string& key) {
    for (const char* variable : variables) {
      if (const auto value = environment(variable)) return *value;
    }
    for (const auto* sections : {&secrets, &config}) {
      const auto section = sections->find(profile);
      if (section == sections->end()) continue;
      if (const auto value = section->second.find(key); value != section->second.end()) {
        return value->second;
      }
    }
    return std::string();
  };

  Settings settings;
  const bool by_variables = environment("AWS_ACCESS_KEY_ID").has_value();
  if (by_variables) {
    settings.credentials = {*environment("AWS_ACCESS_KEY_ID"),
                            environment("AWS_SECRET_ACCESS_KEY").value_or(""),
                            environment("AWS_SESSION_TOKEN").value_or("")};
  } else {
    settings.credentials = {find({}, "aws_access_key_id"), find({}, "aws_secret_access_key"),
                            find({}, "aws_session_token")};
  }
  const Credentials& who = settings.credentials;
  if (who.access_key.empty()) {
    fail(ErrorKind::usage,
         "no credentials for the object store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
         "write aws_access_key_id and aws_secret_access_key below [{}] in '{}'",
         profile, credentials_file.empty() ? "~/.aws/credentials" : credentials_file);
  }
  if (who.secret_key.empty()) {
    fail(ErrorKind::usage, "half of the credentials for the object store: {} is set, {} is not",
         by_variables ? "AWS_ACCESS_KEY_ID" : "aws_access_key_id",
         by_variables ? "AWS_SECRET_ACCESS_KEY" : "aws_secret_access_key");
  }
  if (const std::string region = find({"AWS_REGION", "AWS_DEFAULT_REGION"}, "region");
      !region.empty()) {
    settings.region = region;
  }
  settings.endpoint =
      normal_endpoint(find({"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, "endpoint_url"));
  settings.ca_bundle = find({"AWS_CA_BUNDLE"}, "ca_bundle");
  settings.addressing = parse_addressing(find({"TUTTI_S3_ADDRESSING"}, "s3.addressing_style"));
  return settings;
}

}  // namespace tutti::object
