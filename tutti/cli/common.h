// What several commands share: options, output, and the ways they end.
//
// Standard output holds the result: text for people, or with --json exactly one JSON object on one
// line. Progress and messages go to standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/spec/memory.h"
#include "tutti/spec/recipe.h"

namespace tutti::cli {

void add_json_option(CLI::App& command, bool& json);

// Option checks whose messages say what is accepted.
CLI::Validator at_least(int64_t least);
CLI::Validator between(double least, double most);

void print_json(const Json& value);         // standard output, one line
void print_text(std::string_view text);     // standard output, as it is
void print_message(std::string_view text);  // standard error, as it is
// Throws io when what was printed could not be written, such as on a full disk.
void flush_output();
bool output_is_terminal();

// One "name  value" per line, values aligned.
std::string format_pairs(const std::vector<std::pair<std::string, std::string>>& pairs);

// The user pressed Ctrl-C or sent SIGTERM: the command gives up; the exit code is 128 + signal.
struct Interrupted {
  int signal;
};
void throw_if_interrupted();

}  // namespace tutti::cli
