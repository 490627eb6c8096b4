// `tutti plan systems`: the systems of the catalog, checked.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/plan/constants.h"

namespace tutti::cli {
namespace {

struct SystemsArguments {
  std::string catalog;
  bool json = false;
};

int run_systems(const SystemsArguments& arguments) {
  const std::vector<std::string> folders = catalog_folders(arguments.catalog);
  const catalog::Catalog catalog = catalog::load_catalog(posix_file_system(), folders);
  plan::load_constants(posix_file_system(), folders);  // checks them
  Json list = Json::array();
  std::vector<std::vector<std::string>> cells = {{"system", "chip", "per node", "bf16 TFLOP/s",
                                                  "fp8", "memory", "link", "network", "W",
                                                  "USD/h"}};
  for (const catalog::System& system : catalog.systems) {
    const catalog::Chip& chip = system.chip;
    const catalog::Price* price = catalog.price_of(system.name);
    const double usd = price == nullptr ? 0 : price->on_demand_usd_per_hour;
    const double link = system.tiers.front().bytes_per_second;
    const double network = system.tiers.back().bytes_per_second;
    list.push_back({{"system", system.name},
                    {"chip", chip.name},
                    {"chips_per_node", system.chips_per_node},
                    {"bf16_flops", chip.bf16_flops},
                    {"fp8_flops", chip.fp8_flops},
                    {"fp4_flops", chip.fp4_flops},
                    {"memory_bytes", chip.memory_bytes},
                    {"link_bytes_per_second", link},
                    {"network_bytes_per_second", network},
                    {"board_watts", chip.board_watts},
                    {"on_demand_chip_usd_per_hour", usd > 0 ? Json(usd) : Json(nullptr)}});
    cells.push_back({system.name, chip.name, fmt::format("{}", system.chips_per_node),
                     chip.bf16_flops > 0 ? fmt::format("{:.0f}", chip.bf16_flops / 1e12) : "-",
                     chip.fp8_flops > 0 ? fmt::format("{:.0f}", chip.fp8_flops / 1e12) : "-",
                     fmt::format("{:.0f} GB", chip.memory_bytes / 1e9),
                     fmt::format("{:.0f} GB/s", link / 1e9),
                     fmt::format("{:.1f} GB/s", network / 1e9),
                     chip.board_watts > 0 ? fmt::format("{:.0f}", chip.board_watts) : "-",
                     usd > 0 ? fmt::format("{:.2f}", usd) : "-"});
  }
  if (arguments.json) {
    print_json({{"systems", std::move(list)}});
  } else {
    print_text(format_table(cells));
    print_message(
        "Peaks are dense; link and network are of one chip, one direction; prices are on "
        "demand, per chip.\n");
  }
  return exit_ok;
}

}  // namespace

void add_plan_systems(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<SystemsArguments>();
  CLI::App* command =
      group.add_subcommand("systems", "List the systems of the catalog and check it");
  add_catalog_option(*command, arguments->catalog);
  add_json_option(*command, arguments->json);
  command->footer("Example:\n  tutti plan systems --catalog my_catalog");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_systems(*arguments); }; });
}

}  // namespace tutti::cli
