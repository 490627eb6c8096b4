// Manual pages in roff (man macros): tutti(1), and tutti-data-prepare(1) for each command.
#pragma once

#include <string>

#include "tutti/cli/program/command_tree.h"

namespace tutti::cli {

// "tutti-data-prepare": the page's name, and with ".1" its file's.
std::string manual_name(const CommandPage& page);

std::string manual_page(const CommandPage& page, const std::string& version);

}  // namespace tutti::cli
