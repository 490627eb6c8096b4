// `tutti admin user`, `grant`, `revoke`: people and their roles.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/control/said.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/ledger/account_policy.h"
#include "tutti/control/people/administration.h"

namespace tutti::cli {
namespace {

struct UserArguments {
  ControlOptions control;
  std::string name;
  bool disable = false;
  bool enable = false;
  bool demand_token = false;
  bool trust_account = false;
};

// The caller must show a token to demand one, or would be locked out.
void set_demand(ControlSession& session, const UserArguments& arguments) {
  if (arguments.demand_token && !session.has_token()) {
    fail(ErrorKind::usage,
         "--demand-token: give it with a token of your own in TUTTI_TOKEN (tutti admin token), so "
         "that you can take it back");
  }
  control::demand_token(session.caller(), arguments.name, arguments.demand_token);
}

constexpr const char* kVoluntary =
    "an account acts as its user without a token: anyone with access to it has its role\n";

struct GrantArguments {
  ControlOptions control;
  std::string user;
  std::string role;
  std::string project = control::kDefaultProject;
};

}  // namespace

void add_admin_people(CLI::App& group, Action& action) {
  const auto user = std::make_shared<UserArguments>();
  CLI::App* command = group.add_subcommand("user", "Add a user, without any role yet");
  command->add_option("NAME", user->name, "Name of the account or token")->required();
  CLI::Option* disable =
      command->add_flag("--disable", user->disable,
                        "Disable the user: its tokens stop working, its jobs keep running");
  CLI::Option* enable = command->add_flag("--enable", user->enable, "Undo that")->excludes(disable);
  CLI::Option* demand =
      command
          ->add_flag("--demand-token", user->demand_token,
                     "Require a token from the account of that name, except to run controllers")
          ->excludes(disable)
          ->excludes(enable);
  command->add_flag("--trust-account", user->trust_account, "Undo that")
      ->excludes(disable)
      ->excludes(enable)
      ->excludes(demand);
  command->footer(
      "Commands act as the account that runs them, or as the user of $TUTTI_TOKEN: on an account\n"
      "that several people share, roles apply to those who use tokens. --demand-token enforces\n"
      "that. It guards against mistakes only; write access to the folder of the control plane is\n"
      "write access to its database: to isolate users, give them only the page (tutti serve).\n\n"
      "Examples:\n  tutti admin user ada\n  tutti admin user ada --disable\n"
      "  TUTTI_TOKEN=... tutti admin user shared --demand-token");
  set_action(*command, action, user, [](ControlSession& session, const UserArguments& arguments) {
    if (arguments.demand_token || arguments.trust_account) {
      set_demand(session, arguments);
      return Said{
          fmt::format("user {}: {}\n", arguments.name,
                      arguments.demand_token ? "demands a token" : "its account is trusted"),
          {{"user", arguments.name}, {"demands_token", arguments.demand_token}}};
    }
    if (arguments.disable || arguments.enable) {
      control::disable_user(session.caller(), arguments.name, arguments.disable);
    } else {
      control::create_user(session.caller(), arguments.name);
      if (!arguments.control.json) print_message(kVoluntary);
    }
    return Said{fmt::format("user {}{}\n", arguments.name, arguments.disable ? ": disabled" : ""),
                {{"user", arguments.name}, {"disabled", arguments.disable}}};
  });

  const auto grant = std::make_shared<GrantArguments>();
  command = group.add_subcommand("grant", "Give a user a role in a project");
  command->add_option("USER", grant->user, "Who")->required();
  command->add_option("ROLE", grant->role, "viewer, submitter, deployer, operator or admin")
      ->required();
  command->add_option("--project", grant->project, "Project; '*' is all projects")
      ->capture_default_str();
  command->footer("Example:\n  tutti admin grant ada submitter --project vision");
  set_action(*command, action, grant, [](ControlSession& session, const GrantArguments& arguments) {
    control::grant(session.caller(),
                   {arguments.user, arguments.project, control::parse_role(arguments.role)});
    return Said{
        fmt::format("{} is {} of {}\n", arguments.user, arguments.role, arguments.project),
        {{"user", arguments.user}, {"role", arguments.role}, {"project", arguments.project}}};
  });

  const auto revoke = std::make_shared<GrantArguments>();
  command = group.add_subcommand("revoke", "Revoke a user's role in a project");
  command->add_option("USER", revoke->user, "Whose")->required();
  command->add_option("--project", revoke->project, "Project; '*' is all projects")
      ->capture_default_str();
  command->footer("Example:\n  tutti admin revoke ada --project vision");
  set_action(*command, action, revoke,
             [](ControlSession& session, const GrantArguments& arguments) {
               control::revoke(session.caller(), arguments.user, arguments.project);
               return Said{fmt::format("{} has no role in {}\n", arguments.user, arguments.project),
                           {{"user", arguments.user}, {"project", arguments.project}}};
             });
}

}  // namespace tutti::cli
