// `tutti deployment`: what is deployed, and its end.
#pragma once

#include <CLI/CLI.hpp>

#include "tutti/cli/program/commands.h"

namespace tutti::cli {

void add_deployment(CLI::App& app, Action& action);

}  // namespace tutti::cli
