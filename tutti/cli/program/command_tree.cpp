#include "tutti/cli/program/command_tree.h"

namespace tutti::cli {
namespace {

OptionPage describe_option(const CLI::Option& option) {
  OptionPage page;
  page.positional = option.get_positional();
  if (page.positional) {
    page.names.push_back(option.get_name());
  } else {
    for (const std::string& name : option.get_snames()) page.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) page.names.push_back("--" + name);
  }
  page.many = option.get_items_expected_max() > 1;
  const bool is_flag = option.get_type_size_max() == 0;
  if (!is_flag) {
    page.value = page.positional ? option.get_name() : option.get_type_name();
    page.default_value = option.get_default_str();
  }
  page.environment = option.get_envname();
  page.description = option.get_description();
  page.required = option.get_required();
  return page;
}

CommandPage describe_command(const CLI::App& command, const std::vector<std::string>& words) {
  CommandPage page;
  page.words = words;
  page.description = command.get_description();
  page.footer = command.get_footer();
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty()) page.options.push_back(describe_option(*option));
  }
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (below->get_group().empty()) continue;
    std::vector<std::string> longer = words;
    longer.push_back(below->get_name());
    page.commands.push_back(describe_command(*below, longer));
  }
  return page;
}

void collect(const CommandPage& page, std::vector<const CommandPage*>& out) {
  out.push_back(&page);
  for (const CommandPage& below : page.commands) collect(below, out);
}

}  // namespace

CommandPage describe_commands(const CLI::App& program) { return describe_command(program, {}); }

std::vector<const CommandPage*> all_pages(const CommandPage& page) {
  std::vector<const CommandPage*> out;
  collect(page, out);
  return out;
}

}  // namespace tutti::cli
