// `tutti audit`: the audit log, and whether it is whole.
#include "tutti/control/audit/audit.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/ledger/ledger.h"

namespace tutti::cli {
namespace {

struct AuditArguments {
  ControlOptions control;
  std::string head;
  std::string about;
  int64_t most = 50;
};

std::optional<control::AuditHead> kept_head(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto parts = split(text, ':');
  int64_t seq = 0;
  if (parts.size() != 2 || !CLI::detail::lexical_cast(std::string(parts[0]), seq)) {
    fail(ErrorKind::usage, "--head: '{}' is not accepted; write LINE:HASH as verify prints it",
         text);
  }
  return control::AuditHead{seq, std::string(parts[1])};
}

int run_verify(const AuditArguments& arguments) {
  ControlSession session(arguments.control);
  control::authorize(session.caller(), control::Action::view_audit, control::kAllProjects, "trail");
  control::AuditVerdict verdict = control::verify_audit(
      session.database(), posix_file_system(), session.folder().audit(), kept_head(arguments.head));
  try {
    control::verify_ledger(session.database());
  } catch (const Error& error) {
    verdict.findings.push_back({"ledger", error.what()});
  }
  if (arguments.control.json) {
    Json findings = Json::array();
    for (const control::AuditFinding& finding : verdict.findings) {
      findings.push_back({{"where", finding.where}, {"what", finding.what}});
    }
    print_json({{"intact", verdict.intact()},
                {"lines", verdict.head.seq},
                {"lines_in_file", verdict.lines_in_file},
                {"head", fmt::format("{}:{}", verdict.head.seq, verdict.head.hash)},
                {"findings", findings}});
  } else {
    for (const control::AuditFinding& finding : verdict.findings) {
      print_text(fmt::format("{}: {}\n", finding.where, finding.what));
    }
    print_text(fmt::format("{}: {} lines, head {}:{}\n", verdict.intact() ? "intact" : "NOT INTACT",
                           verdict.head.seq, verdict.head.seq, verdict.head.hash));
  }
  return verdict.intact() ? exit_ok : exit_failed;
}

int run_show(const AuditArguments& arguments) {
  ControlSession session(arguments.control);
  control::authorize(session.caller(), control::Action::view_audit, control::kAllProjects, "trail");
  const auto lines = control::audit_lines(session.database(), arguments.most, arguments.about);
  if (arguments.control.json) {
    print_json({{"lines", lines}});
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {
      {"line", "time", "who", "what", "on", "", "detail"}};
  for (const Json& line : lines) {
    Json detail = line.value("detail", Json::object());
    // What records are made of again (replay.h): --json has it.
    for (const char* key : {"request", "claims", "rate", "site"}) detail.erase(key);
    if (line.contains("client")) detail["client"] = line["client"];
    rows.push_back({std::to_string(line.value("seq", int64_t{0})), line.value("time", ""),
                    line.value("who", ""), line.value("what", ""), line.value("on", ""),
                    line.value("allowed", true) ? "allowed" : "DENIED", dump_json(detail)});
  }
  print_text(format_table(rows));
  return exit_ok;
}

}  // namespace

void add_audit(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("audit", "Audit log of the control plane: who did what");
  group->require_subcommand(1);
  group->footer("Example:\n  tutti audit verify");

  const auto verify = std::make_shared<AuditArguments>();
  CLI::App* command =
      group->add_subcommand("verify", "Find edited, deleted, reordered or truncated lines");
  command
      ->add_option("--head", verify->head,
                   "Head recorded elsewhere that must still be in the chain")
      ->type_name("LINE:HASH");
  add_control_options(*command, verify->control);
  command->footer(
      "Exit code 1 if anything is wrong. Store the head that it prints elsewhere: with it even a\n"
      "fully rewritten chain is detected.\n\nExample:\n  tutti audit verify");
  command->callback([verify, &action] { action = [verify] { return run_verify(*verify); }; });

  const auto show = std::make_shared<AuditArguments>();
  command = group->add_subcommand("show", "Show the newest lines");
  command->add_option("--about", show->about, "Only lines about this, such as 'job 7' or a user");
  command->add_option("--most", show->most, "Most rows to print")
      ->check(at_least(1))
      ->capture_default_str();
  add_control_options(*command, show->control);
  command->footer("Example:\n  tutti audit show --about 'job 7'");
  command->callback([show, &action] { action = [show] { return run_show(*show); }; });
}

}  // namespace tutti::cli
