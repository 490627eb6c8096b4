// The program: parses the command line, runs one command, and turns exceptions into a message and
// an exit code.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/program/store_paths.h"
#include "tutti/comm/rendezvous/rank_processes.h"
#include "tutti/launch/output.h"
#include "tutti_version.h"

namespace tutti::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  tutti data prepare my_texts/ --out mine --tokenizer byte --holdout 0.05
  tutti train demo data.train=mine data.validation=mine-validation
  tutti generate runs/demo-20260131-120000 --prompt "Once"

Every command has --help with an example, and --json for scripts.

Exit codes:
  0      done
  1      failed; a retry may help (disk full, damaged file, no permission)
  2      the command, recipe or a path in it is wrong; a retry will not help
  3      checked: the machine is unhealthy (check), or there is no verdict (mlperf validate)
  75     stopped early with everything saved: repeat the command to resume
  93     training diverged; do not restart
  128+n  ended by signal n)";

// Before the constructors of shared libraries.
__attribute__((section(".preinit_array"),
               used)) void (*const kBeforeLibraries)() = remember_ignored_hangup;

// Writes "NAME=DEFAULT" with each release of CLI11; from 2.4 on its own text is "NAME [DEFAULT] ".
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = Formatter::make_option_opts(option);
    const std::string bracketed = " [" + option->get_default_str() + "] ";
    const size_t at = text.find(bracketed);
    if (at != std::string::npos) {
      text.replace(at, bracketed.size(), "=" + option->get_default_str());
    }
    return text;
  }
};

// The commands named on the command line so far: "tutti data prepare".
std::string command_path(const CLI::App& app) {
  std::string path = app.get_name();
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    path += " " + at->get_name();
  }
  return path;
}

// "tutti trian": the first word that is not a command, and what it may have meant. Groups of
// commands have no options of their own but flags, so that words before it are commands or flags.
std::string unknown_command(const CLI::App& app, int argc, char** argv) {
  const CLI::App* at = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto commands = at->get_subcommands([](const CLI::App*) { return true; });
    if (commands.empty()) return {};
    if (starts_with(word, "-")) continue;
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* command : commands) {
      // Those without a group are not for people.
      if (!command->get_group().empty()) names.push_back(command->get_name());
      if (command->get_name() == word) next = command;
    }
    if (next == nullptr) {
      const std::string suggestion = nearest_word(word, names);
      return fmt::format("no command '{}'{} commands: {}", word,
                         suggestion.empty() ? ";" : "; did you mean '" + suggestion + "'?",
                         join(names, ", "));
    }
    at = next;
  }
  return {};
}

// "--addres": the option of that command that it may have meant.
std::string unknown_option(const CLI::App& app, const std::string& what) {
  const size_t space = what.find(" --");
  if (space == std::string::npos) return {};
  const size_t begin = space + 1;
  const std::string word = what.substr(begin, what.find_first_of(" =", begin) - begin);
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::vector<std::string> names;
  for (const CLI::Option* option : at->get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string suggestion = nearest_word(word, names);
  return fmt::format("no option '{}'{}", word,
                     suggestion.empty() ? "" : "; did you mean '" + suggestion + "'?");
}

// "Could not convert: JOB = abc": a number is expected wherever this happens.
std::string unreadable_value(const std::string& what) {
  constexpr std::string_view kStart = "Could not convert: ";
  const size_t equals = what.find(" = ");
  if (!starts_with(what, kStart) || equals == std::string::npos) return {};
  return fmt::format("{}: '{}' is not accepted; write a number",
                     what.substr(kStart.size(), equals - kStart.size()), what.substr(equals + 3));
}

int report(const Json& error, const std::string& message, int code, bool json) {
  std::fflush(stdout);
  print_message(fmt::format("tutti: {}error: {}\n", launch::rank_prefix(), message));
  if (json && launch::answers_for_the_command()) {
    Json object = {{"error", error}, {"exit_code", code}};
    object["error"]["message"] = message;
    print_json(object);
  }
  return code;
}

int report_usage(const CLI::App& app, const std::string& message, bool json) {
  return report({{"kind", "usage"}},
                fmt::format("{}\n  see '{} --help'", message, command_path(app)), exit_usage, json);
}

int run_action(const Action& action, bool json) {
  try {
    const int code = action();
    flush_output();
    return code;
  } catch (const Error& error) {
    return report({{"kind", error_kind_name(error.kind())}}, error.what(), exit_code(error.kind()),
                  json);
  } catch (const Interrupted& interrupted) {
    return report({{"kind", "interrupted"}},
                  fmt::format("stopped by signal {}", interrupted.signal), 128 + interrupted.signal,
                  json);
  } catch (const launch::EndedQuietly& ended) {
    return ended.code;
  } catch (const std::bad_alloc&) {
    return report({{"kind", "no_memory"}},
                  "out of memory; make the model or batch smaller, or use a larger machine",
                  exit_failed, json);
  } catch (const std::system_error& error) {
    return report({{"kind", "io"}}, error.what(), exit_failed, json);
  } catch (const std::exception& error) {
    return report({{"kind", "internal"}}, std::string("unexpected: ") + error.what(), exit_failed,
                  json);
  }
}

int main_with(int argc, char** argv) {
  CLI::App app("Tutti trains large language models to a target loss.", "tutti");
  app.set_version_flag("--version", "tutti " TUTTI_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(32);

  Action action;
  for (const auto add : kCommands) add(app, action);

  bool json = false;
  for (int i = 1; i < argc; ++i) json = json || std::string(argv[i]) == "--json";
  if (argc == 1) {
    print_message(app.help());
    return exit_usage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    // "tutti trian --help" must not answer with the help of something else.
    if (const std::string message = unknown_command(app, argc, argv); !message.empty()) {
      return report_usage(app, message, json);
    }
    const auto print = [&] {
      app.exit(success, std::cout, std::cerr);
      std::cout.flush();
      return static_cast<int>(exit_ok);
    };
    return run_action(print, json);
  } catch (const CLI::ParseError& error) {
    std::string message = unknown_command(app, argc, argv);
    if (message.empty() && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      message = unknown_option(app, error.what());
    }
    if (message.empty()) message = unreadable_value(error.what());
    if (message.empty()) message = error.what();
    return report_usage(app, message, json);
  }
  const auto checked = [&] {
    check_store_paths(app);
    return action();
  };
  return run_action(checked, json);
}

}  // namespace
}  // namespace tutti::cli

int main(int argc, char** argv) {
  tutti::comm::end_with_launcher();
  return tutti::cli::main_with(argc, argv);
}
