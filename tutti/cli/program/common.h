// What several commands share: options, output, and the ways they end.
//
// Standard output holds the result: text for people, or with --json exactly one JSON object on one
// line. Progress and messages go to standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/base/json.h"
#include "tutti/base/message.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

void add_json_option(CLI::App& command, bool& json);

// Option checks whose messages say what is accepted.
CLI::Validator at_least(int64_t least);
CLI::Validator between(double least, double most);

void print_json(const Json& value);      // standard output, one line
void print_text(std::string_view text);  // standard output, as it is
// Throws io when what was printed could not be written, such as on a full disk.
void flush_output();
bool output_is_terminal();

}  // namespace tutti::cli
