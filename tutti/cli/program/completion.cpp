// `tutti completion`: scripts for shells, made from the commands that the program has.
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/program/completion_scripts.h"
#include "tutti/launch/home.h"

namespace tutti::cli {

void add_completion(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("completion", "Print a script that completes commands");
  group->require_subcommand(1);
  group->footer(
      "Examples:\n"
      "  source <(tutti completion bash)\n"
      "  tutti completion zsh > ~/.zfunc/_tutti\n"
      "  tutti completion fish > ~/.config/fish/completions/tutti.fish");
  struct Shell {
    const char* name;
    std::string (*script)(const CommandPage&);
    const char* example;
  };
  for (const Shell& shell : {Shell{"bash", bash_completion, "source <(tutti completion bash)"},
                             Shell{"zsh", zsh_completion, "source <(tutti completion zsh)"},
                             Shell{"fish", fish_completion, "tutti completion fish | source"}}) {
    CLI::App* command =
        group->add_subcommand(shell.name, fmt::format("The script for {}", shell.name));
    command->footer(fmt::format("Example:\n  {}", shell.example));
    command->callback([&app, &action, script = shell.script] {
      action = [&app, script] {
        print_text(script(describe_commands(app)));
        return exit_ok;
      };
    });
  }
  // Of the scripts; not for people.
  group->add_subcommand("recipes", "")->group("")->callback([&action] {
    action = [] {
      for (const std::string& name : launch::recipe_names(posix_file_system()))
        print_text(name + "\n");
      return exit_ok;
    };
  });
}

}  // namespace tutti::cli
