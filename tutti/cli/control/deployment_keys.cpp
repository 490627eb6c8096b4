#include "tutti/cli/control/deployment_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/endpoint/api_keys.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/jobs/deployment_rule.h"
#include "tutti/control/ledger/spend.h"
#include "tutti/endpoint/use_log.h"

namespace tutti::cli {
namespace {

constexpr const char* kPriceOptions = "--usd-per-million-";
constexpr double kKeyLockSeconds = 10;  // others hold it for an instant

struct ApiKeyArguments {
  ControlOptions control;
  std::string project;
  std::string name;
  std::string add;
  std::string withdraw;
  KeyLimitOptions limits;
};

// Budgets in money count by the prices that the deployment was given.
void check_prices(const endpoint::KeyLimits& limits, const control::JobRequest& request,
                  const std::string& name) {
  const auto& words = request.command;
  const bool has_prices = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return starts_with(word, kPriceOptions);
  });
  if (!limits.micro_usd || has_prices) return;
  fail(ErrorKind::usage,
       "deployment {}: its tokens have no price, and key '{}' has a budget in USD; deploy it with "
       "--usd-per-million-prompt-tokens and --usd-per-million-answer-tokens, or take --key-tokens",
       name, limits.name);
}

// Two that change the file at once would lose a key.
std::unique_ptr<ProcessLock> lock_keys(const std::string& folder) {
  auto lock = take_lock(join_path(folder, "lock"), kKeyLockSeconds);
  if (lock == nullptr) {
    fail(ErrorKind::io, "'{}' is being changed by another command; try again", key_file_of(folder));
  }
  return lock;
}

Json limits_json(const endpoint::KeyLimits& limits) {
  Json json = {{"name", limits.name}};
  if (limits.tokens) json["tokens"] = *limits.tokens;
  if (limits.micro_usd) json["usd"] = static_cast<double>(*limits.micro_usd) / 1e6;
  if (limits.requests_per_minute) json["requests_per_minute"] = *limits.requests_per_minute;
  if (limits.tokens_per_minute) json["tokens_per_minute"] = *limits.tokens_per_minute;
  return json;
}

int add_key(ControlSession& session, const ApiKeyArguments& arguments, const control::Job& job,
            const std::string& folder) {
  const endpoint::KeyLimits limits = parse_key_limits(arguments.add, arguments.limits);
  check_prices(limits, job.request, arguments.name);
  std::string key;
  control::change_keys(session.caller(), job, "issue key", [&] {
    make_key_file(folder);
    const auto lock = lock_keys(folder);
    key = add_api_key(posix_file_system(), key_file_of(folder), limits);
    Json detail = limits_json(limits);
    detail["key"] = id_of_api_key(key);
    return detail;
  });
  if (arguments.control.json) {
    Json json = limits_json(limits);
    json["key"] = key;
    json["id"] = id_of_api_key(key);
    print_json(json);
  } else {
    print_text(key + "\n");
  }
  return exit_ok;
}

int withdraw_key(ControlSession& session, const ApiKeyArguments& arguments, const control::Job& job,
                 const std::string& folder) {
  control::change_keys(session.caller(), job, "withdraw key", [&] {
    make_key_file(folder);
    const auto lock = lock_keys(folder);
    remove_api_key(posix_file_system(), key_file_of(folder), arguments.withdraw);
    return Json{{"key", arguments.withdraw}};
  });
  if (arguments.control.json) {
    print_json({{"withdrawn", arguments.withdraw}});
  } else {
    print_text("withdrawn\n");
  }
  return exit_ok;
}

int list_keys(ControlSession& session, const ApiKeyArguments& arguments, const control::Job& job,
              const std::string& folder) {
  control::authorize(session.caller(), control::Action::view_ledger, job.request.project,
                     "project " + job.request.project);
  FileSystem& files = posix_file_system();
  std::map<std::string, endpoint::KeyUse> used;
  endpoint::read_use_log(files, use_file_of(folder), [&](const endpoint::UseRecord& record) {
    used[record.key] += record.use;
  });
  std::map<std::string, endpoint::KeyLimits> keys;
  if (files.exists(key_file_of(folder))) keys = ApiKeys::read(files, key_file_of(folder)).limits();
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {
      {"key", "name", "requests", "prompt tokens", "answer tokens", "USD", "limits"}};
  for (const auto& [id, limits] : keys) {
    const endpoint::KeyUse& use = used[id];
    Json json = limits_json(limits);
    json["id"] = id;
    json["used"] = {{"requests", use.requests},
                    {"prompt_tokens", use.prompt_tokens},
                    {"cached_tokens", use.cached_tokens},
                    {"answer_tokens", use.answer_tokens},
                    {"usd", static_cast<double>(use.pico_usd) / 1e12}};
    list.push_back(std::move(json));
    rows.push_back({id, limits.name, std::to_string(use.requests),
                    std::to_string(use.prompt_tokens), std::to_string(use.answer_tokens),
                    control::format_micro(use.pico_usd / endpoint::kPicoPerMicro),
                    key_limits_text(limits)});
  }
  if (arguments.control.json) {
    print_json({{"deployment", arguments.name}, {"keys", std::move(list)}});
  } else {
    print_text(keys.empty() ? "no keys\n" : format_table(rows));
  }
  return exit_ok;
}

int run_keys(const ApiKeyArguments& arguments) {
  ControlSession session(arguments.control);
  const control::Job job =
      control::find_newest_deployment(session.caller(), arguments.project, arguments.name);
  const std::string folder =
      deployment_folder(session.folder(), job.request.project, arguments.name);
  if (!arguments.add.empty()) return add_key(session, arguments, job, folder);
  if (!arguments.withdraw.empty()) return withdraw_key(session, arguments, job, folder);
  return list_keys(session, arguments, job, folder);
}

}  // namespace

// Neither has a '+' (control/people/administration.h, deployment_rule.h).
std::string deployment_folder(const control::ControlFolder& plane, const std::string& project,
                              const std::string& name) {
  return join_path(plane.deployments(), project + "+" + name);
}

std::string key_file_of(const std::string& deployment_folder) {
  return join_path(deployment_folder, "keys");
}

std::string use_file_of(const std::string& deployment_folder) {
  return join_path(deployment_folder, "usage.jsonl");
}

void check_kept_keys(const std::string& deployment_folder, const control::JobRequest& request) {
  FileSystem& files = posix_file_system();
  if (!files.exists(key_file_of(deployment_folder))) return;
  for (const auto& [id, limits] : ApiKeys::read(files, key_file_of(deployment_folder)).limits()) {
    check_prices(limits, request, request.deployment->name);
  }
}

void make_key_file(const std::string& deployment_folder) {
  FileSystem& files = posix_file_system();
  files.create_directories(deployment_folder);
  const auto lock = lock_keys(deployment_folder);
  if (!files.exists(key_file_of(deployment_folder))) {
    write_file_atomic(files, key_file_of(deployment_folder), kApiKeysHeading);
  }
}

void add_deployment_keys(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<ApiKeyArguments>();
  CLI::App* command = group.add_subcommand(
      "keys", "List, issue and withdraw API keys with budgets and rate limits");
  command->add_option("NAME", arguments->name, "Of the deployment")->required();
  command->add_option("--project", arguments->project, "Its project, where several have that name");
  const auto is_given = [](const std::string& text) {
    return text.empty() ? std::string("is empty") : std::string();
  };
  CLI::Option* add =
      command->add_option("--add", arguments->add, "Issue a key for this client, and print it once")
          ->type_name("CLIENT")
          ->check(is_given);
  command
      ->add_option("--withdraw", arguments->withdraw,
                   "Withdraw the key with this id, the part between the dashes")
      ->type_name("ID")
      ->excludes(add);
  add_key_limit_options(*command, arguments->limits);
  add_control_options(*command, arguments->control);
  command->footer(
      "Needs the role of a deployer in the project, for the list that of a viewer. The endpoint\n"
      "takes over a change within seconds. Keys and what they used stay with the name when it is\n"
      "deployed again. The key itself is stored nowhere.\n\n"
      "Examples:\n  tutti deployment keys chat\n"
      "  tutti deployment keys chat --add ann --key-usd 5 --key-requests-per-minute 60");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_keys(*arguments); }; });
}

}  // namespace tutti::cli
