// The commands as plain values, taken from their definitions: what shell completion and the manual
// pages are generated from. Commands and options without a group are not for people and left out.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tutti::cli {

struct OptionPage {
  std::vector<std::string> names;  // "--out", "-h"; of a positional its name alone, "RECIPE"
  std::string value;               // "PREFIX"; empty: a flag
  std::string default_value;       // empty: none
  std::string environment;         // variable that sets it; empty: none
  std::string description;
  bool positional = false;
  bool required = false;
  bool many = false;  // takes several values
};

struct CommandPage {
  std::vector<std::string> words;  // {"data", "prepare"}; empty: the program
  std::string description;         // one line
  std::string footer;              // explanations and examples
  std::vector<OptionPage> options;
  std::vector<CommandPage> commands;
};

CommandPage describe_commands(const CLI::App& program);

// The page itself and all below it, each before those below it.
std::vector<const CommandPage*> all_pages(const CommandPage& page);

}  // namespace tutti::cli
