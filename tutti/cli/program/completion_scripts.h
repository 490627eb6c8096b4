// What a shell runs to complete a command line of the program: subcommands, options, and the names
// of recipes where a command takes one (`tutti completion recipes` prints them). All else completes
// as file names.
#pragma once

#include <string>

#include "tutti/cli/program/command_tree.h"

namespace tutti::cli {

std::string bash_completion(const CommandPage& program);
std::string zsh_completion(const CommandPage& program);
std::string fish_completion(const CommandPage& program);

}  // namespace tutti::cli
