#include "tutti/cli/program/store_paths.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/object/uri.h"

namespace tutti::cli {
namespace {

// Whatever they say, they are no paths.
constexpr std::array kTexts = {"--prompt", "--remark", "--reason", "--template", "TEXT"};

bool may_be_there(const std::string& command, const std::string& argument) {
  const auto is_it = [&](const StoreArgument& each) {
    return command == each.command && argument == each.argument;
  };
  return std::any_of(kStoreArguments.begin(), kStoreArguments.end(), is_it) ||
         std::find(kTexts.begin(), kTexts.end(), argument) != kTexts.end();
}

std::string remedy_for(const std::string& command, const std::string& argument) {
  if (argument == "--run" || command == "train") {
    return "events are appended to files of a run folder: choose a local one, and "
           "checkpoint.store=s3://BUCKET/PREFIX for its checkpoints";
  }
  if (argument == "RUN") return "give the run folder that 'tutti train' printed";
  for (const char* written : {"--out", "--html", "--csv", "--markdown", "--write"}) {
    if (starts_with(argument, written)) return "write to a local path, and copy it from there";
  }
  return "copy it to this machine, and give the path of the copy";
}

}  // namespace

void check_store_paths(const CLI::App& program) {
  std::string command;
  for (const CLI::App* at = &program; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    command += (command.empty() ? "" : " ") + at->get_name();
    for (const CLI::Option* option : at->get_options()) {
      if (option->count() == 0) continue;
      const std::string argument = option->get_name();
      for (const std::string& value : option->results()) {
        if (!object::is_uri(value) || may_be_there(command, argument)) continue;
        fail(ErrorKind::usage,
             "{}: '{}' is in an object store, and 'tutti {}' takes a local path there; {}",
             argument, value, command, remedy_for(command, argument));
      }
    }
  }
}

}  // namespace tutti::cli
