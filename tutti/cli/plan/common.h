// What the plan commands share: the catalog's folders, options, and recipes for a number of GPUs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/program/commands.h"
#include "tutti/plan/validate.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {

// Of predict, explain and search: what was asked for does not fit into memory (docs/planner.md).
inline constexpr int exit_does_not_fit = 4;

// The catalog that comes with the program, then the user's own folder. Throws not_found when there
// is neither or no such folder, and usage for one with nothing of a catalog in it.
std::vector<std::string> catalog_folders(const std::string& own);
// Throws usage, naming those there are, where no set is of that software; empty: any.
void check_software(const std::vector<plan::Constants>& sets, const std::string& software);
// Measured rows of the CSV file `path`, prepared; of rows that name no system on `system`.
std::vector<plan::PreparedRow> anchor_rows(const std::string& path, const std::string& system,
                                           const std::vector<std::string>& folders,
                                           const catalog::Catalog& catalog);
void add_catalog_option(CLI::App& command, std::string& folder);
void add_profile_option(CLI::App& command, std::string& profile);
void add_price_option(CLI::App& command, std::string& price);
// Says on standard error that costs of `system` are unknown, where it has no price.
void warn_no_price(const catalog::Catalog& catalog, const catalog::System& system);

// The recipe of that file or name; data-parallel ranks follow from the number of GPUs (0: as the
// recipe says) unless its mesh has so many. Throws usage where `overrides` say another number.
spec::Recipe planned_recipe(const std::string& recipe, const std::vector<std::string>& overrides,
                            int64_t gpus);

Json split_json(const plan::Split& split);

void add_plan_calibrate(CLI::App& group, Action& action);
void add_plan_explain(CLI::App& group, Action& action);
void add_plan_predict(CLI::App& group, Action& action);
void add_plan_scaling(CLI::App& group, Action& action);
void add_plan_search(CLI::App& group, Action& action);
void add_plan_serve(CLI::App& group, Action& action);
void add_plan_systems(CLI::App& group, Action& action);
void add_plan_validate(CLI::App& group, Action& action);

}  // namespace tutti::cli
