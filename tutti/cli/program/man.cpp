// `tutti man`: the manual pages of the commands.
#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/cli/program/manual.h"
#include "tutti_version.h"

namespace tutti::cli {
namespace {

int write_manual(const CLI::App& app, const std::string& folder) {
  const CommandPage program = describe_commands(app);
  if (folder.empty()) {
    print_text(manual_page(program, TUTTI_VERSION));
    return exit_ok;
  }
  FileSystem& files = posix_file_system();
  files.create_directories(folder);
  for (const CommandPage* page : all_pages(program)) {
    write_file_atomic(files, join_path(folder, manual_name(*page) + ".1"),
                      manual_page(*page, TUTTI_VERSION));
  }
  return exit_ok;
}

}  // namespace

void add_man(CLI::App& app, Action& action) {
  const auto folder = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("man", "Write the manual pages, one per command");
  command->add_option("DIR", *folder, "Folder for all pages; default: tutti(1) to standard output");
  command->footer("Examples:\n  tutti man | man -l -\n  tutti man ~/.local/share/man/man1");
  command->callback(
      [folder, &app, &action] { action = [folder, &app] { return write_manual(app, *folder); }; });
}

}  // namespace tutti::cli
